/*
 * hutch_tasks.h - tasks, queues, groups, completion ports and the asynchronous calls
 *
 * SPDX-License-Identifier: MIT
 *
 * The part of Hutch for programs that must not wait: each call of a cache as a task,
 * functions of the host as tasks, and ports that pass completions to an event loop.
 * The functions are in the same library as those of hutch.h, and the conventions of
 * hutch.h apply here too.
 *
 *   hutch_port *port;
 *   hutch_port_create(&port);
 *   hutch_task_options options = {.struct_size = sizeof options, .port = port,
 *                                 .complete = got_it, .context = request};
 *   if (hutch_get_async(cache, HUTCH_STR("logo"), &options, NULL) != HUTCH_OK)
 *     fprintf(stderr, "%s\n", hutch_error_words());
 *   struct pollfd descriptor = {.fd = hutch_port_fd(port), .events = POLLIN};
 *   while (poll(&descriptor, 1, -1) == 1) hutch_port_drain(port, 0, NULL);
 */
#ifndef HUTCH_TASKS_H
#define HUTCH_TASKS_H

#include "hutch.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hutch_task hutch_task;   /* one asynchronous operation; counted */
typedef struct hutch_group hutch_group; /* tasks with one completion; counted */
typedef struct hutch_port hutch_port;   /* where completions wait; counted */

/* ------------------------------------------------------------------- tasks */

/*
 * A task is one asynchronous operation: an operation of a cache (hutch_get_async and the
 * like), or a function of the host (hutch_queue_submit). A task runs on a queue, and makes
 * exactly one completion: when it has run, was cancelled, passed its deadline, or its
 * cache was closed. A worker thread of the queue makes the completion, or the thread that
 * drains the port that the options name. The call that submits a task never makes its
 * completion on its own stack.
 *
 * Operations on one key run one after the other, in the order of their submission. Those
 * on different keys run concurrently, as the queue's width allows. A write counts from its
 * submission: if another write of the key, or a clear, was submitted later and is done
 * first, the earlier write changes nothing and ends with HUTCH_SUPERSEDED. A clear also
 * counts from its submission, and waits for no key. Tasks of a group count from the start
 * of the group.
 *
 * A task whose deadline passes while it waits ends at that time, also if every worker is
 * busy or the queue is suspended. If it needs to, the queue makes one thread more than its
 * width for that. If that thread is making a completion too, or could not be made, the
 * deadline takes effect when a thread comes free. In a queue without threads, deadlines
 * take effect within hutch_queue_run and hutch_maintain.
 */

/* Order among the tasks that wait; see hutch_queue_create. */
enum {
  HUTCH_PRIORITY_LOW = -1,
  HUTCH_PRIORITY_DEFAULT = 0,
  HUTCH_PRIORITY_HIGH = 1
};

/* The state of a task. */
enum {
  HUTCH_TASK_QUEUED = 1,
  HUTCH_TASK_RUNNING = 2,    /* or it has run, and its completion is being made */
  HUTCH_TASK_CANCELLING = 3, /* running, and every submission of it was cancelled */
  HUTCH_TASK_ENDED = 4       /* its status is final; the completion of one that has not run
                                may not have been made yet */
};

/* The operation of a task. */
enum {
  HUTCH_OPERATION_WORK = 1,  /* a function of the host */
  HUTCH_OPERATION_GROUP = 2, /* all tasks of a group have ended */
  HUTCH_OPERATION_GET = 3,
  HUTCH_OPERATION_PUT = 4,
  HUTCH_OPERATION_REMOVE = 5,
  HUTCH_OPERATION_CONTAINS = 6,
  HUTCH_OPERATION_CLEAR = 7,
  HUTCH_OPERATION_FLUSH = 8,
  HUTCH_OPERATION_TRIM = 9,
  HUTCH_OPERATION_LOAD = 10,
  /* Those of hutch_submit. */
  HUTCH_OPERATION_INFO = 11,
  HUTCH_OPERATION_COUNT = 12,
  HUTCH_OPERATION_COST = 13,
  HUTCH_OPERATION_EACH = 14,
  HUTCH_OPERATION_TOUCH = 15,
  HUTCH_OPERATION_ADD = 16,
  HUTCH_OPERATION_REPLACE = 17,
  HUTCH_OPERATION_COMPARE_AND_SWAP = 18,
  HUTCH_OPERATION_INCREMENT = 19,
  HUTCH_OPERATION_POP = 20,
  HUTCH_OPERATION_GET_MANY = 21,
  HUTCH_OPERATION_PUT_MANY = 22,
  HUTCH_OPERATION_REMOVE_MANY = 23,
  HUTCH_OPERATION_PUT_FILE = 24,
  HUTCH_OPERATION_PATH = 25
};

/* The result of a task. A field that its operation does not use is 0. */
typedef struct hutch_completion {
  size_t struct_size;
  hutch_status status;      /* what the call without _async would return, or
                               HUTCH_CANCELLED, HUTCH_SUPERSEDED, HUTCH_TIMED_OUT;
                               of host work: what the function returned */
  uint32_t operation;       /* HUTCH_OPERATION_* */
  hutch_task *task;         /* valid during the call; hutch_task_retain keeps it. NULL
                               for a group */
  hutch_value *value;       /* get, load, pop: the value, valid likewise; NULL if there is
                               none */
  const hutch_error *error; /* status < 0: the error, valid likewise. get_many, put_many,
                               remove_many: that of the last index that failed. Else
                               NULL, and in *now: hutch_last_error has the failure */
  uint64_t version;         /* put, and the other calls that store a value: as in
                               hutch_put_result */
  uint32_t memory;          /* likewise: HUTCH_OUTCOME_*, as in hutch_put_result */
  uint32_t disk;            /* likewise */
  uint64_t count;           /* group: the number of its tasks; trim: the number of
                               entries it removed; count, cost: the answer */
  uint64_t cancelled;       /* group: how many of its tasks ended with HUTCH_CANCELLED */
  int64_t number;           /* increment: the sum */
  const hutch_entry_info *info; /* info: the record, valid during the call; else NULL */
  hutch_batch *batch;       /* get_many, put_many, remove_many: the results, valid likewise;
                               hutch_batch_retain keeps them. Else NULL */
  const char *path;         /* path: the file's path, valid likewise; else NULL */
} hutch_completion;

/* Called with a task's completion. */
typedef void (*hutch_complete)(void *context, const hutch_completion *completion);
/* Merges the context `from` of a task into the context `into` of the task that it joins. */
typedef void (*hutch_merge)(void *into, void *from);

/* How to submit. All zero: the defaults. */
typedef struct hutch_task_options {
  size_t struct_size;
  int32_t priority; /* HUTCH_PRIORITY_* */
  uint32_t flags;   /* HUTCH_TASK_MAY_FINISH_NOW, HUTCH_TASK_WAIT, or 0 */
  int64_t deadline; /* a duration from the submission: a task that still waits
                       then does not run, and ends with HUTCH_TIMED_OUT. 0: none */
  /* Called once with the task's completion; NULL: no call. */
  hutch_complete complete;
  /* hutch_clear_async, hutch_trim_async: a worker reports progress, as in
     hutch_trim_spec; a clear ignores a request to stop. Of trims that are done as one, the
     first has its function called, which may stop all of them. */
  hutch_progress progress;
  void *context;
  /* Called once with context when the task no longer uses it: after the completion, or
     when there will be none. It is called also if the submission failed. */
  hutch_release release;
  hutch_port *port;       /* where the completion waits to be drained; NULL: a
                             worker makes it */
  hutch_group *group;     /* holds the task until hutch_group_start; NULL: none */
  /* The identifier by which tasks are coalesced: bytes, copied. While a task with the same
     identifier is queued, this one joins it. The work is then done once for all that
     joined, at the highest priority of those that wait. Each keeps a task of its own, and
     its cancel only leaves the work; the work is cancelled when the last has left. For
     host work, `merge(into, from)` merges each joining context into the first, on a
     worker, before the function is called with the first context; the merges come in the
     order of submission, without the tasks that have left. merge NULL: the first context
     is enough. An operation on a whole cache joins only one of the same kind on the same
     cache or view. Operations on a key take no identifier, since they are ordered by key
     (HUTCH_UNSUPPORTED). NULL: none. */
  const void *identifier;
  size_t identifier_size; /* 1..65,535 */
  hutch_merge merge;
  /* With HUTCH_TASK_MAY_FINISH_NOW: struct_size set. */
  hutch_completion *now;
} hutch_task_options;

enum {
  /* If the operation can be done at once (a read that memory answers, with no write of the
     key before it; a write where memory is all there is, with no task of the key before it),
     the call does it and there is no other completion: the call fills in *now, with
     an operation that is not 0 and a value that the caller releases; *task is NULL.
     Else now->operation is 0, and the call submits the task. */
  HUTCH_TASK_MAY_FINISH_NOW = 1,
  /* If a bounded queue is full, wait until it has room, at most for the deadline. */
  HUTCH_TASK_WAIT = 2
};

/*
 * hutch_task_cancel - do not run a task, or ask it to end
 *
 * *was (may be NULL) receives the state that the task had. HUTCH_TASK_QUEUED: it never
 * runs, and its completion has HUTCH_CANCELLED. HUTCH_TASK_RUNNING or
 * HUTCH_TASK_CANCELLING: the task is asked to end; a function of the host sees that by
 * hutch_task_status, and an operation of a cache runs to its end. HUTCH_TASK_ENDED: nothing
 * happens. Since 0.1.
 */
HUTCH_API hutch_status hutch_task_cancel(hutch_task *task, uint32_t *was);

/*
 * hutch_task_wait - wait until a task has ended
 *
 * HUTCH_OK: the completion has been made, or waits in its port. HUTCH_WOULD_BLOCK: timeout
 * is 0, and the task has not ended. HUTCH_TIMED_OUT: the task has not ended after timeout
 * nanoseconds (HUTCH_FOREVER: no limit). HUTCH_DEADLOCK: a task or a completion of the
 * same queue made the call; with a timeout of 0 the call only looks, within a callback
 * too. On a queue without threads, another thread has to run the tasks. Since 0.1.
 */
HUTCH_API hutch_status hutch_task_wait(hutch_task *task, int64_t timeout);

/*
 * hutch_task_set_priority - change the priority of a queued task
 *
 * The call has no effect on a task that runs or has ended. Since 0.1.
 */
HUTCH_API hutch_status hutch_task_set_priority(hutch_task *task, int32_t priority);

/*
 * hutch_task_status - the state of a task
 *
 * *state receives HUTCH_TASK_*. If that is HUTCH_TASK_ENDED, *result (may be NULL) receives
 * the status of the completion. Since 0.1.
 */
HUTCH_API hutch_status hutch_task_status(hutch_task *task, uint32_t *state,
                                         hutch_status *result);

/*
 * hutch_task_retain, hutch_task_release - references
 *
 * retain returns its argument. A release does not stop the task. Since 0.1.
 */
HUTCH_API hutch_task *hutch_task_retain(hutch_task *task);
HUTCH_API void hutch_task_release(hutch_task *task);

/* ------------------------------------------------------------------ queues */

/* How to make a queue. All zero: the defaults. */
typedef struct hutch_queue_options {
  size_t struct_size;
  uint32_t width;  /* how many tasks run at once, at most 256; 0: 2 */
  uint32_t flags;  /* HUTCH_QUEUE_NO_THREADS or 0 */
  uint64_t length; /* how many tasks may wait, without those that a group holds; 0: any
                      number. A full queue refuses tasks for a group too; it does not refuse
                      the start of a group */
} hutch_queue_options;

enum {
  /* The queue has no threads: hutch_queue_run does the work. */
  HUTCH_QUEUE_NO_THREADS = 1
};

/*
 * hutch_queue_create - a queue for functions of the host
 *
 * *out: a new reference, which hutch_queue_release releases. The queue makes a thread when
 * it first needs it, one for each task that runs at once, and one more if all are busy and
 * there are deadlines. The threads are named "hutch-task" and block all signals but those
 * of faults (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS), which a handler of the host
 * may need. They end when the last reference and the last task are gone.
 *
 * One place of the width is for the oldest task that waits, whatever its priority, so that
 * every task runs in the end. The other places are for the task of the highest priority,
 * and among equals for the one that has waited longest with it: a task whose priority is
 * changed begins anew, and one behind others of its key begins when it may run. A queue of
 * width 1 runs tasks in the order of submission. Since 0.1.
 */
HUTCH_API hutch_status hutch_queue_create(const hutch_queue_options *options, hutch_queue **out);

/*
 * hutch_shared_queue - the process's shared queue
 *
 * *out: a new reference. The first call makes the queue, and every call gives the same one.
 * Its width is the number of processors that are online, at least 2 and at most 256. The
 * queue does not end with its last reference, but at exit(): it then refuses new tasks
 * (HUTCH_CLOSED), cancels the queued reads and the queued functions of the host, carries out
 * the queued writes of caches, and waits up to 5 seconds for its tasks. An exit() within a
 * task waits for no task. The child of a fork has a shared queue of its own. Failures:
 * HUTCH_NO_MEMORY. Since 0.1.
 */
HUTCH_API hutch_status hutch_shared_queue(hutch_queue **out);

/*
 * ONE QUEUE FOR SEVERAL CACHES
 *   options.queue of hutch_open names the queue that runs the tasks of a cache; several
 *   caches may have the same one. The order of tasks is that of the queue, for all caches:
 *   by priority and age, and with a width of 1 in the order of submission. The suspension,
 *   the width, the length and hutch_queue_cancel_all concern the tasks of all its caches.
 *   hutch_close, hutch_wait_all and the release of a cache's last reference concern the
 *   tasks of that cache alone; a close waits for no other task, but its own tasks need a
 *   free thread of the queue. It needs no hutch_queue_resume, and on a queue without threads
 *   it runs the cache's tasks itself.
 *   The host may release the queue before or after it closes the caches. The maintenance of
 *   each cache has a thread of its own, which is made when it is needed
 *   (HUTCH_OPEN_NO_THREADS: none), so neither a busy nor a suspended queue delays it.
 *   A queue that hutch_cache_queue gave is a cache's own and ends with that cache: hutch_open
 *   refuses it (HUTCH_INVALID_ARGUMENT).
 *   After a fork, the caches of one queue have one new queue in the child, of the same
 *   width, length and kind, not suspended. hutch_cache_queue returns it; the parent's
 *   reference is HUTCH_FORKED.
 */

/*
 * hutch_cache_queue - the queue on which a cache's tasks run
 *
 * *out: a new reference. The queue also accepts functions of the host. The queue makes one
 * thread more than its width for the cache's maintenance if all its threads are busy. After
 * the close of the cache it accepts no task (HUTCH_CLOSED). If options.queue named a queue, *out is
 * that queue, which does neither. Since 0.1.
 */
HUTCH_API hutch_status hutch_cache_queue(hutch_cache *cache, hutch_queue **out);

/* A function of the host as a task; returns the status of its completion. */
typedef hutch_status (*hutch_work)(void *context, hutch_task *task);

/*
 * hutch_queue_submit - run a function of the host
 *
 * A worker calls work once with context, unless the task is cancelled first. The result of
 * work is the status of the completion. The library calls release (may be NULL) with
 * context afterwards, or when it will not call work, also if the submission failed. task
 * (may be NULL) receives a reference. work receives the task too: hutch_task_status tells
 * it when it is asked to end. HUTCH_WOULD_BLOCK: the queue is full. HUTCH_TIMED_OUT: the
 * queue was full until the deadline (HUTCH_TASK_WAIT). HUTCH_DEADLOCK: a task of the same
 * queue would wait for room. HUTCH_CLOSED: the cache of the queue has been closed. HUTCH_IO:
 * no thread could be made. Since 0.1.
 */
HUTCH_API hutch_status hutch_queue_submit(hutch_queue *queue, hutch_work work, void *context,
                                          hutch_release release,
                                          const hutch_task_options *options, hutch_task **task);

/* hutch_queue_set_width - the number of tasks that run at once, 1..256; immediate. Since 0.1. */
HUTCH_API hutch_status hutch_queue_set_width(hutch_queue *queue, uint32_t width);

/*
 * hutch_queue_wait_all - wait until no task is left
 *
 * The call waits for all tasks that are queued or run, also for those submitted meanwhile,
 * but not for groups that have not been started. timeout and answers are as in
 * hutch_task_wait. Since 0.1.
 */
HUTCH_API hutch_status hutch_queue_wait_all(hutch_queue *queue, int64_t timeout);

/*
 * hutch_queue_cancel_all - cancel every task
 *
 * The call is hutch_task_cancel for each task. *cancelled (may be NULL) receives how many
 * were queued. Since 0.1.
 */
HUTCH_API hutch_status hutch_queue_cancel_all(hutch_queue *queue, uint64_t *cancelled);

/*
 * hutch_queue_suspend, hutch_queue_resume - start no task for a while
 *
 * Running tasks continue. Each suspend needs a resume of its own; one resume more is
 * HUTCH_INVALID_ARGUMENT. Since 0.1.
 */
HUTCH_API hutch_status hutch_queue_suspend(hutch_queue *queue);
HUTCH_API hutch_status hutch_queue_resume(hutch_queue *queue);

/*
 * hutch_queue_run - run tasks on the calling thread
 *
 * The call runs tasks until no task is left that may run, or until budget nanoseconds have
 * passed after at least one task (0: no limit). *ran (may be NULL) receives how many it
 * ran, with those of which it made the completion alone, since they were cancelled or too
 * late. The call is for queues without threads; a queue with threads it helps.
 * HUTCH_DEADLOCK: a task of the same queue made the call. Since 0.1.
 */
HUTCH_API hutch_status hutch_queue_run(hutch_queue *queue, int64_t budget, uint64_t *ran);

/*
 * hutch_queue_retain, hutch_queue_release - references
 *
 * retain returns its argument. After the last release, the queue still carries out queued
 * tasks and tasks that a group holds, and then its threads end. A queue without threads
 * cancels them instead. A group does not keep its queue: if the queue is gone, the thread
 * that ends the group's last task makes the group's completion. Since 0.1.
 */
HUTCH_API hutch_queue *hutch_queue_retain(hutch_queue *queue);
HUTCH_API void hutch_queue_release(hutch_queue *queue);

/* ------------------------------------------------------------------ groups */

/*
 * hutch_group_create - a group of tasks, with one completion for all
 *
 * A task joins the group that its options name, and waits until hutch_group_start. queue:
 * its workers make the group's completion; the tasks may be of any queue. *out: a new
 * reference, which hutch_group_release releases. Since 0.1.
 */
HUTCH_API hutch_status hutch_group_create(hutch_queue *queue, hutch_group **out);

/*
 * hutch_group_start - let the tasks of a group run
 *
 * The call uses complete, context, release and port of options (NULL: no completion is
 * made). The completion is made when the last task has ended, also if some were cancelled,
 * with HUTCH_OPERATION_GROUP and the numbers of tasks. Its status is HUTCH_CANCELLED if
 * hutch_group_cancel was called before the last task had ended, or if every task was
 * cancelled. The group accepts no further task (HUTCH_INVALID_ARGUMENT). HUTCH_EXISTS:
 * this call or a wait has started the group before. Since 0.1.
 */
HUTCH_API hutch_status hutch_group_start(hutch_group *group, const hutch_task_options *options);

/*
 * hutch_group_cancel - hutch_task_cancel for every task of the group
 *
 * The group's completion is still made, once, with HUTCH_CANCELLED: when the running tasks
 * have ended, and not before the group has been started. Since 0.1.
 */
HUTCH_API hutch_status hutch_group_cancel(hutch_group *group);

/*
 * hutch_group_wait - wait until every task of the group has ended
 *
 * The call also waits until the group's completion has been made, or waits in its port. It
 * starts a group that has not been started, without a completion; with a timeout of 0 it
 * only looks. timeout and answers are as in hutch_task_wait. HUTCH_DEADLOCK is found for the
 * group's queue alone: a task of another queue must not wait for a group that has tasks on the
 * queue of that task. Since 0.1.
 */
HUTCH_API hutch_status hutch_group_wait(hutch_group *group, int64_t timeout);

/*
 * hutch_group_retain, hutch_group_release - references
 *
 * retain returns its argument. The last release of a group that was not started cancels its
 * tasks. Since 0.1.
 */
HUTCH_API hutch_group *hutch_group_retain(hutch_group *group);
HUTCH_API void hutch_group_release(hutch_group *group);

/* ------------------------------------------------------------------- ports */

/*
 * hutch_port_create - a port, where completions wait for an event loop
 *
 * A task whose options name the port leaves its completion there. The port's descriptor is
 * readable while completions wait, and the event loop then drains them on its own thread.
 * hutch_task_wait may return a moment before the descriptor becomes readable.
 * One port serves any number of caches and queues. *out: a new reference, which
 * hutch_port_release releases. HUTCH_IO: the process has no descriptor left. Since 0.1.
 */
HUTCH_API hutch_status hutch_port_create(hutch_port **out);

/*
 * hutch_port_fd - the port's descriptor, an eventfd
 *
 * The caller may poll the descriptor, but must not read, write or close it. It is valid as
 * long as the port. -1 for NULL. Since 0.1.
 */
HUTCH_API int32_t hutch_port_fd(hutch_port *port);

/*
 * hutch_port_drain - make the completions that wait, on the calling thread
 *
 * The call makes completions in the order in which their tasks ended, at most max of them
 * (0: those that wait at the time of the call). *drained (may be NULL) receives their
 * number. Several threads may drain a port at once; each makes a part of the completions.
 * A completion may drain or close its port: those that have not been made still wait there.
 * HUTCH_CLOSED: the port has been closed. Since 0.1.
 */
HUTCH_API hutch_status hutch_port_drain(hutch_port *port, uint64_t max, uint64_t *drained);

/* How a close ends the completions that wait in the port. */
enum {
  HUTCH_PORT_DRAIN = 0,  /* they are made, on the calling thread */
  HUTCH_PORT_DISCARD = 1 /* they are not made; their contexts are released */
};

/*
 * hutch_port_close - accept no more completions
 *
 * The port discards the completions of tasks that end later, and releases their contexts.
 * The caller keeps its reference. HUTCH_CLOSED: the port has been closed before. Since 0.1.
 */
HUTCH_API hutch_status hutch_port_close(hutch_port *port, uint32_t how);

/*
 * hutch_port_retain, hutch_port_release - references
 *
 * retain returns its argument. The last release of a port without a close discards its
 * completions. Since 0.1.
 */
HUTCH_API hutch_port *hutch_port_retain(hutch_port *port);
HUTCH_API void hutch_port_release(hutch_port *port);

/* ------------------------------------------------------------------- async */

/*
 * The calls of a cache as tasks. The calls copy their arguments. HUTCH_OK: the task is
 * submitted, or done (HUTCH_TASK_MAY_FINISH_NOW); the answer of the operation is in the
 * completion. Any other status: the task is not submitted, and there is no completion:
 * HUTCH_WOULD_BLOCK, HUTCH_TIMED_OUT and HUTCH_DEADLOCK as in hutch_queue_submit;
 * HUTCH_CLOSED; HUTCH_IO: no thread could be made. options may be NULL. task (may be NULL)
 * receives a reference, which hutch_task_release releases. A task keeps its cache open: a
 * cache that is released without hutch_close is shut down after its last task.
 */

/*
 * hutch_get_async - hutch_get as a task
 *
 * If options name a port, memory answers, and no write of the key waits, the call gets the
 * answer at once, before reads of the key that wait. The completion is in the port when the
 * call returns, also if the queue is suspended or full. hutch_load_async does the same with
 * a value that memory has. Since 0.1.
 */
HUTCH_API hutch_status hutch_get_async(hutch_cache *cache, const void *key, size_t key_size,
                                       const hutch_task_options *options, hutch_task **task);

/*
 * hutch_put_async - hutch_put as a task
 *
 * A time to live runs from the submission. Since 0.1.
 */
HUTCH_API hutch_status hutch_put_async(hutch_cache *cache, const void *key, size_t key_size,
                                       const void *value, size_t value_size,
                                       const hutch_put_options *put_options,
                                       const hutch_task_options *options, hutch_task **task);

/* hutch_remove_async - hutch_remove as a task. Since 0.1. */
HUTCH_API hutch_status hutch_remove_async(hutch_cache *cache, const void *key, size_t key_size,
                                          const hutch_task_options *options, hutch_task **task);

/* hutch_contains_async - hutch_contains as a task. Since 0.1. */
HUTCH_API hutch_status hutch_contains_async(hutch_cache *cache, const void *key, size_t key_size,
                                            const hutch_task_options *options,
                                            hutch_task **task);

/*
 * hutch_clear_async - hutch_clear as a task
 *
 * The call removes entries that were put before it, and keeps entries that are put later,
 * whenever the task runs. A cancel therefore comes too late, and deadline has an effect only
 * on HUTCH_TASK_WAIT.
 * Until the task has run, a get may still find such an entry in memory; hutch_add and the
 * other conditional calls treat it as absent. A clear takes no group and no identifier
 * (HUTCH_UNSUPPORTED). Since 0.1.
 */
HUTCH_API hutch_status hutch_clear_async(hutch_cache *cache, const hutch_task_options *options,
                                         hutch_task **task);

/* hutch_flush_async - hutch_flush as a task. Since 0.1. */
HUTCH_API hutch_status hutch_flush_async(hutch_cache *cache, const hutch_task_options *options,
                                         hutch_task **task);

/*
 * hutch_trim_async - hutch_trim as a task
 *
 * spec->progress is NULL; options->progress takes its place. A trim that is asked to end
 * ends with HUTCH_CANCELLED, and count is what it had removed before. Trims of one kind and
 * one identifier are done as one trim, which removes what the stronger of them would. Since
 * 0.1.
 */
HUTCH_API hutch_status hutch_trim_async(hutch_cache *cache, const hutch_trim_spec *spec,
                                        const hutch_task_options *options, hutch_task **task);

/*
 * hutch_load_async - hutch_load as a task
 *
 * The task looks for the value in the order of its key. Operations that are submitted for
 * the key later do not wait for a load that the task begins, and a put is newer than the
 * loaded value. There is one load of a key at a time, whichever calls ask for it. The task
 * that leads runs its loader on a worker. A task that waits for another's load occupies no
 * place of the queue's width and counts as queued. Its cancel only leaves the load, which
 * continues for the others. Its timeout is that of load_options, or the deadline if that is
 * sooner (HUTCH_TIMED_OUT). The cancel of a task whose loader runs asks it to end; the loader
 * sees that by hutch_loading_wanted when all other callers have left.
 *
 * A loader may take a reference to its loading and return HUTCH_WOULD_BLOCK. It is then
 * answered later, from any thread, by hutch_loading_fulfil, _fail or _abandon, and occupies
 * no thread until then. Its task is queued until then: a cancel or the deadline ends the task
 * at once and abandons the load, the lead passes on, and a later answer is
 * HUTCH_INVALID_ARGUMENT. The release of the host's last reference without an answer abandons
 * the load; so does HUTCH_WOULD_BLOCK if the host has no reference. load_options->parent is
 * the load that needs this one; NULL: none, within a loader too. The library calls release
 * (may be NULL) once with context when it will not call the loader any more, before the
 * completion; also if the submission failed. A close ends the tasks whose loader does not run
 * (HUTCH_CLOSED or HUTCH_CANCELLED). Since 0.1.
 */
HUTCH_API hutch_status hutch_load_async(hutch_cache *cache, const void *key, size_t key_size,
                                        hutch_loader loader, void *context,
                                        hutch_release release,
                                        const hutch_load_options *load_options,
                                        const hutch_task_options *options, hutch_task **task);

/* A call of hutch_submit: its operation, and the arguments that the call of that name has. All
   others are zero. */
typedef struct hutch_call {
  size_t struct_size;
  uint32_t operation;    /* HUTCH_OPERATION_INFO, or one that is listed after it */
  uint32_t use;          /* put_file: HUTCH_FILE_* */
  const void *key;       /* the key, of a call on one key */
  size_t key_size;
  const void *value;     /* add, replace, compare_and_swap */
  size_t value_size;
  const hutch_put_options *put_options; /* the calls that store a value; NULL: defaults */
  uint64_t version;      /* compare_and_swap */
  int64_t delta;         /* increment */
  int64_t initial;       /* increment */
  int64_t time_to_live;  /* touch */
  int64_t time_to_idle;  /* touch */
  const void *const *keys; /* get_many, put_many, remove_many: `count` keys */
  const size_t *key_sizes;
  const void *const *values; /* put_many */
  const size_t *value_sizes;
  size_t count;
  const char *path;      /* put_file */
  hutch_visitor visitor; /* each: a worker calls it, with the context of the task */
} hutch_call;

/*
 * hutch_submit - a call of a cache as a task
 *
 * For the calls that have no function of their own above. The answer and the results are
 * in the completion. A call on one key runs in the order of its key, and a write of one
 * key counts from its submission, as that of hutch_put_async does (HUTCH_SUPERSEDED). The
 * calls on many keys count from the time when their task runs. A touch changes no value,
 * and is never superseded. A close carries out the writes that wait, but for those that a
 * group holds, which it cancels. A walk (HUTCH_OPERATION_EACH) that is asked to end ends
 * with HUTCH_CANCELLED. A call takes no identifier (HUTCH_UNSUPPORTED). With
 * HUTCH_TASK_MAY_FINISH_NOW, only add, replace and compare_and_swap may be done at once.
 * HUTCH_UNSUPPORTED: an operation that is not one of these. Since 0.1.
 */
HUTCH_API hutch_status hutch_submit(hutch_cache *cache, const hutch_call *call,
                                    const hutch_task_options *options, hutch_task **task);

/*
 * hutch_wait_all - hutch_queue_wait_all for the cache's queue; if the queue is options.queue,
 * for the tasks of this cache alone. Since 0.1.
 */
HUTCH_API hutch_status hutch_wait_all(hutch_cache *cache, int64_t timeout);

#ifdef __cplusplus
}
#endif
#endif /* HUTCH_TASKS_H */
