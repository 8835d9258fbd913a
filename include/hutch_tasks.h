/*
 * hutch_tasks.h - tasks, queues, groups, completion ports and the asynchronous calls
 *
 * SPDX-License-Identifier: MIT
 *
 * The part of Hutch for programs that must not wait: each call of a cache as a task,
 * functions of the host as tasks, and ports by which an event loop gets completions.
 * The functions are in the same library as those of hutch.h, whose conventions hold
 * here too.
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
typedef struct hutch_queue hutch_queue; /* runs tasks; counted */
typedef struct hutch_group hutch_group; /* tasks with one completion; counted */
typedef struct hutch_port hutch_port;   /* where completions wait; counted */

/* ------------------------------------------------------------------- tasks */

/*
 * A task is one asynchronous operation: of a cache (hutch_get_async and its
 * kin), or a function of the host's (hutch_queue_submit). It runs on a queue,
 * and makes exactly one completion, whatever becomes of it: it ran, it was
 * cancelled, its deadline passed, its cache was closed. A completion is made by
 * a worker thread of the queue, or on the thread that drains the port that the
 * options name; never on the stack of the call that submitted the task.
 *
 * Operations on one key run one after the other, in the order in which they were
 * submitted, and those on different keys at the same time, as the queue's width
 * allows. A write counts from its submission: if another write of the key, or a
 * clear, was submitted later and is done first, the earlier one changes nothing
 * and ends with HUTCH_SUPERSEDED. A clear counts from its submission likewise,
 * and waits for no key. Tasks of a group count from the group's start.
 *
 * A task whose deadline passes while it waits ends at that time, also if every
 * worker is busy or the queue is suspended: the queue makes one thread more than
 * its width when it is needed for that. Only while that one makes a completion
 * too, or could not be made, a deadline is seen when a thread comes free. In a
 * queue without threads it is seen by hutch_queue_run and hutch_maintain.
 */

/* Order among the tasks that wait; see hutch_queue_create. */
enum {
  HUTCH_PRIORITY_LOW = -1,
  HUTCH_PRIORITY_DEFAULT = 0,
  HUTCH_PRIORITY_HIGH = 1
};

/* Where a task stands. */
enum {
  HUTCH_TASK_QUEUED = 1,
  HUTCH_TASK_RUNNING = 2,    /* or its completion is being made */
  HUTCH_TASK_CANCELLING = 3, /* running, and asked to end by all that wait for it */
  HUTCH_TASK_ENDED = 4       /* its status is fixed */
};

/* What a task does. */
enum {
  HUTCH_OPERATION_WORK = 1,  /* a function of the host's */
  HUTCH_OPERATION_GROUP = 2, /* all of a group have ended */
  HUTCH_OPERATION_GET = 3,
  HUTCH_OPERATION_PUT = 4,
  HUTCH_OPERATION_REMOVE = 5,
  HUTCH_OPERATION_CONTAINS = 6,
  HUTCH_OPERATION_CLEAR = 7,
  HUTCH_OPERATION_FLUSH = 8,
  HUTCH_OPERATION_TRIM = 9,
  HUTCH_OPERATION_LOAD = 10
};

/* What came of a task. Fields that its operation has no use for are 0. */
typedef struct hutch_completion {
  size_t struct_size;
  hutch_status status;      /* as the call without _async would answer, or
                               HUTCH_CANCELLED, HUTCH_SUPERSEDED, HUTCH_TIMED_OUT;
                               of host work what the function returned */
  uint32_t operation;       /* HUTCH_OPERATION_* */
  hutch_task *task;         /* valid during the call; retain it to keep it. NULL
                               for a group */
  hutch_value *value;       /* get, load: the value, likewise; NULL if there is none */
  const hutch_error *error; /* status < 0: the words, likewise; else NULL */
  uint64_t version;         /* put: as in hutch_put_result */
  uint32_t memory;          /* put: likewise, HUTCH_OUTCOME_* */
  uint32_t disk;            /* put: likewise */
  uint64_t count;           /* group: how many tasks it had; trim: how many entries
                               it removed */
  uint64_t cancelled;       /* group: how many of them ended with HUTCH_CANCELLED */
} hutch_completion;

/* Called with a task's completion. */
typedef void (*hutch_complete)(void *context, const hutch_completion *completion);
/* Merges the context of a task that joins another into that one's. */
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
  /* hutch_clear_async, hutch_trim_async: how far it is, on a worker, as in
     hutch_trim_spec; a clear does not stop. */
  hutch_progress progress;
  void *context;
  /* Called once with context when the task has no more use for it: after the
     completion, or when there will be none; also when the submission failed. */
  hutch_release release;
  hutch_port *port;       /* where the completion waits to be drained; NULL: a
                             worker makes it */
  hutch_group *group;     /* which holds the task until hutch_group_start; NULL:
                             none */
  /* Bytes; copied. While a task with the same identifier is queued, this one joins
     it: the work is done once, for both, at the highest priority of those that
     wait. Each has its own task: to cancel one is to leave, and the work is off
     when the last has left. Of host work each joining context is merged
     by `merge(into, from)` on a worker, before the function is called with the
     context of the first, in the order of submission and without those that have
     left; NULL: that of the first is enough. Not for operations on a key, which
     are ordered by it (HUTCH_UNSUPPORTED). NULL: none. */
  const void *identifier;
  size_t identifier_size; /* 1..65,535 */
  hutch_merge merge;
  /* With HUTCH_TASK_MAY_FINISH_NOW: struct_size set. */
  hutch_completion *now;
} hutch_task_options;

enum {
  /* If the operation can be done at once (a value in memory, no task of the key
     before it), do it and make no completion: *now is filled in, its operation is
     not 0 and its value the caller's to release; *task is NULL. Else now->operation
     is 0 and the task is submitted. */
  HUTCH_TASK_MAY_FINISH_NOW = 1,
  /* If a bounded queue is full, wait until it is not, for at most the deadline. */
  HUTCH_TASK_WAIT = 2
};

/*
 * hutch_task_cancel - do not run a task, or ask it to end
 *
 * *was (may be NULL) receives where the task stood. HUTCH_TASK_QUEUED: it never
 * runs, and its completion comes with HUTCH_CANCELLED. HUTCH_TASK_RUNNING or
 * HUTCH_TASK_CANCELLING: it is asked; a function of the host's sees it by
 * hutch_task_status, an operation of a cache runs to its end. HUTCH_TASK_ENDED:
 * nothing happens. Since 0.1.
 */
HUTCH_API hutch_status hutch_task_cancel(hutch_task *task, uint32_t *was);

/*
 * hutch_task_wait - wait until a task has ended
 *
 * When it returns HUTCH_OK the completion has been made, or waits in its port.
 * HUTCH_WOULD_BLOCK: timeout is 0 and it has not ended. HUTCH_TIMED_OUT: nor has
 * it after timeout nanoseconds (HUTCH_FOREVER: as long as it takes).
 * HUTCH_DEADLOCK: called from a task or a completion of the same queue. On a queue
 * without threads another thread has to run the tasks. Since 0.1.
 */
HUTCH_API hutch_status hutch_task_wait(hutch_task *task, int64_t timeout);

/*
 * hutch_task_set_priority - change the priority of a task that is queued
 *
 * Of one that runs, or has ended, nothing changes. Since 0.1.
 */
HUTCH_API hutch_status hutch_task_set_priority(hutch_task *task, int32_t priority);

/*
 * hutch_task_status - where a task stands
 *
 * *state receives HUTCH_TASK_*; *result (may be NULL), if that is HUTCH_TASK_ENDED,
 * the status of its completion. Since 0.1.
 */
HUTCH_API hutch_status hutch_task_status(hutch_task *task, uint32_t *state,
                                         hutch_status *result);

/*
 * hutch_task_retain, hutch_task_release - references
 *
 * retain returns its argument. A task that is released goes on. Since 0.1.
 */
HUTCH_API hutch_task *hutch_task_retain(hutch_task *task);
HUTCH_API void hutch_task_release(hutch_task *task);

/* ------------------------------------------------------------------ queues */

/* How to make a queue. All zero: the defaults. */
typedef struct hutch_queue_options {
  size_t struct_size;
  uint32_t width;  /* how many tasks run at once, at most 256; 0: 2 */
  uint32_t flags;  /* HUTCH_QUEUE_NO_THREADS or 0 */
  uint64_t length; /* how many tasks may wait; 0: any number */
} hutch_queue_options;

enum {
  /* The queue has no threads: hutch_queue_run does the work. */
  HUTCH_QUEUE_NO_THREADS = 1
};

/*
 * hutch_queue_create - a queue for functions of the host's
 *
 * *out: a new reference, given up by hutch_queue_release. Threads are made when
 * they are first needed, one for each task that runs at once, and one more if all
 * are busy while there are deadlines; they are called "hutch-task", have all
 * signals blocked, and are gone when the last reference and the last task are.
 *
 * Of the tasks that wait, one place of the width goes to the oldest, whatever its
 * priority, so that none waits for ever; the other places go to the highest
 * priority, and among equals to the oldest. A width of 1 is strict order of
 * submission. Since 0.1.
 */
HUTCH_API hutch_status hutch_queue_create(const hutch_queue_options *options, hutch_queue **out);

/*
 * hutch_cache_queue - the queue that a cache's tasks run on
 *
 * *out: a new reference. It takes functions of the host's too. After the cache's
 * close it answers HUTCH_CLOSED. Since 0.1.
 */
HUTCH_API hutch_status hutch_cache_queue(hutch_cache *cache, hutch_queue **out);

/* A task of the host's; returns its completion's status. */
typedef hutch_status (*hutch_work)(void *context, hutch_task *task);

/*
 * hutch_queue_submit - run a function of the host's
 *
 * work is called once with context, on a worker, unless the task is cancelled
 * first; what it returns is the completion's status. release (may be NULL) is
 * called with context afterwards, or when work will not be called, also when the
 * submission failed. task (may be NULL) receives a reference. work is given the
 * task too, so that hutch_task_status tells it when it is asked to end.
 * HUTCH_WOULD_BLOCK: the queue is full. HUTCH_TIMED_OUT: it was so until the
 * deadline (HUTCH_TASK_WAIT). HUTCH_DEADLOCK: to wait for room from a task of the
 * same queue. Since 0.1.
 */
HUTCH_API hutch_status hutch_queue_submit(hutch_queue *queue, hutch_work work, void *context,
                                          hutch_release release,
                                          const hutch_task_options *options, hutch_task **task);

/* hutch_queue_set_width - how many tasks run at once, 1..256; at once. Since 0.1. */
HUTCH_API hutch_status hutch_queue_set_width(hutch_queue *queue, uint32_t width);

/*
 * hutch_queue_wait_all - wait until no task is left
 *
 * That is queued or runs, those submitted meanwhile included; but not for groups
 * that have not been started. timeout and answers as in hutch_task_wait.
 * Since 0.1.
 */
HUTCH_API hutch_status hutch_queue_wait_all(hutch_queue *queue, int64_t timeout);

/*
 * hutch_queue_cancel_all - cancel every task
 *
 * As hutch_task_cancel for each. *cancelled (may be NULL) receives how many were
 * queued. Since 0.1.
 */
HUTCH_API hutch_status hutch_queue_cancel_all(hutch_queue *queue, uint64_t *cancelled);

/*
 * hutch_queue_suspend, hutch_queue_resume - start no task for a while
 *
 * Tasks that run go on. Each suspend needs a resume of its own; one more is
 * HUTCH_INVALID_ARGUMENT. Since 0.1.
 */
HUTCH_API hutch_status hutch_queue_suspend(hutch_queue *queue);
HUTCH_API hutch_status hutch_queue_resume(hutch_queue *queue);

/*
 * hutch_queue_run - run tasks on the calling thread
 *
 * Until none is left that may run, or, after at least one, budget nanoseconds have
 * passed (0: no limit). *ran (may be NULL) receives how many. For queues without
 * threads; a queue with threads is helped. HUTCH_DEADLOCK: from a task of the same queue.
 * Since 0.1.
 */
HUTCH_API hutch_status hutch_queue_run(hutch_queue *queue, int64_t budget, uint64_t *ran);

/*
 * hutch_queue_retain, hutch_queue_release - references
 *
 * retain returns its argument. After the last release what is queued, and what a
 * group holds, is still carried out, and the threads end by themselves; without
 * threads it is cancelled. A group does not keep its queue: the completion of a group
 * whose queue has gone is made by the thread that ends the group's last task.
 * Since 0.1.
 */
HUTCH_API hutch_queue *hutch_queue_retain(hutch_queue *queue);
HUTCH_API void hutch_queue_release(hutch_queue *queue);

/* ------------------------------------------------------------------ groups */

/*
 * hutch_group_create - a group of tasks, which makes one completion for all
 *
 * Tasks are added by naming the group in their options, and wait until
 * hutch_group_start. queue: its workers make the group's completion; the tasks
 * may be of any queue. *out: a new reference, given up by hutch_group_release.
 * Since 0.1.
 */
HUTCH_API hutch_status hutch_group_create(hutch_queue *queue, hutch_group **out);

/*
 * hutch_group_start - let the tasks of a group run
 *
 * Of options (NULL: no completion is made) complete, context, release and port count: the
 * completion comes when the last task has ended, also if some were cancelled, with
 * HUTCH_OPERATION_GROUP and their numbers. Its status is HUTCH_CANCELLED if
 * hutch_group_cancel came before the last task had ended, or if every task was
 * cancelled. No task is added any more. HUTCH_EXISTS: it has been started before, by
 * this call or by a wait. Since 0.1.
 */
HUTCH_API hutch_status hutch_group_start(hutch_group *group, const hutch_task_options *options);

/*
 * hutch_group_cancel - hutch_task_cancel for every task of the group
 *
 * The group's completion is made all the same, once, with HUTCH_CANCELLED: when what
 * ran has ended, and not before the group has been started. Since 0.1.
 */
HUTCH_API hutch_status hutch_group_cancel(hutch_group *group);

/*
 * hutch_group_wait - wait until every task of the group has ended
 *
 * And until the group's completion has been made, or waits in its port. A group that
 * has not been started is started by the wait, without a completion; a timeout of 0
 * only looks. timeout and answers as in hutch_task_wait. Since 0.1.
 */
HUTCH_API hutch_status hutch_group_wait(hutch_group *group, int64_t timeout);

/*
 * hutch_group_retain, hutch_group_release - references
 *
 * retain returns its argument. If a group that was not started goes, its tasks
 * are cancelled. Since 0.1.
 */
HUTCH_API hutch_group *hutch_group_retain(hutch_group *group);
HUTCH_API void hutch_group_release(hutch_group *group);

/* ------------------------------------------------------------------- ports */

/*
 * hutch_port_create - a place where completions wait, for event loops
 *
 * A task whose options name the port leaves its completion there. The port's
 * descriptor is readable while completions wait; the loop then drains them on its
 * own thread. One port serves any number of caches and queues. *out: a new
 * reference, given up by hutch_port_release. Since 0.1.
 */
HUTCH_API hutch_status hutch_port_create(hutch_port **out);

/*
 * hutch_port_fd - the port's descriptor, an eventfd
 *
 * To be polled, not to be read, written or closed. It lives as long as the port.
 * -1 for NULL. Since 0.1.
 */
HUTCH_API int32_t hutch_port_fd(hutch_port *port);

/*
 * hutch_port_drain - make the completions that wait, on the calling thread
 *
 * In the order in which the tasks ended, at most max (0: those that are there
 * when it is called). *drained (may be NULL) receives how many. Of several threads
 * that drain at once each makes some. Since 0.1.
 */
HUTCH_API hutch_status hutch_port_drain(hutch_port *port, uint64_t max, uint64_t *drained);

/* What becomes of the completions that wait in a port that is closed. */
enum {
  HUTCH_PORT_DRAIN = 0,  /* they are made, on the calling thread */
  HUTCH_PORT_DISCARD = 1 /* they are not made; their contexts are released */
};

/*
 * hutch_port_close - take no more completions
 *
 * Those of tasks that end later are discarded, and their contexts released. The
 * caller's reference stays. HUTCH_CLOSED: it has been closed before. Since 0.1.
 */
HUTCH_API hutch_status hutch_port_close(hutch_port *port, uint32_t how);

/*
 * hutch_port_retain, hutch_port_release - references
 *
 * retain returns its argument. A port that goes without a close discards. Since 0.1.
 */
HUTCH_API hutch_port *hutch_port_retain(hutch_port *port);
HUTCH_API void hutch_port_release(hutch_port *port);

/* ------------------------------------------------------------------- async */

/*
 * The calls of a cache as tasks. Arguments are copied. HUTCH_OK: submitted, or
 * done (HUTCH_TASK_MAY_FINISH_NOW); what the operation answers is in the
 * completion. Anything else: not submitted, and there is no completion.
 * options may be NULL; task (may be NULL) receives a reference, given up by
 * hutch_task_release. A task keeps its cache open: what is given up without
 * hutch_close is shut down after its last task.
 */

/* hutch_get_async - hutch_get as a task. Since 0.1. */
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
 * Entries that were put before the call go, and entries put later stay, whenever the task
 * runs; so a cancel comes too late, and deadline has no meaning. Until it has run a get
 * may still find what will go, in memory; for hutch_add and its kin it is gone. No group
 * and no identifier (HUTCH_UNSUPPORTED). Since 0.1.
 */
HUTCH_API hutch_status hutch_clear_async(hutch_cache *cache, const hutch_task_options *options,
                                         hutch_task **task);

/* hutch_flush_async - hutch_flush as a task. Since 0.1. */
HUTCH_API hutch_status hutch_flush_async(hutch_cache *cache, const hutch_task_options *options,
                                         hutch_task **task);

/*
 * hutch_trim_async - hutch_trim as a task
 *
 * spec->progress is NULL; that of options takes its place. A trim that is asked to
 * end ends with HUTCH_CANCELLED, and count says what went before. Trims of one kind
 * and one identifier are done as one, which removes what the stronger would.
 * Since 0.1.
 */
HUTCH_API hutch_status hutch_trim_async(hutch_cache *cache, const hutch_trim_spec *spec,
                                        const hutch_task_options *options, hutch_task **task);

/*
 * hutch_load_async - hutch_load as a task
 *
 * The task looks for the value in the order of its key; what is submitted for the
 * key later does not wait for the load that it may begin, and a put is newer than
 * what is loaded. There is one load of a key at a time, whatever calls ask for it.
 * The task that leads runs its loader on a worker. A task that waits for another's takes no
 * place of the queue's width meanwhile and counts as queued: to cancel it is to
 * leave, and the load goes on for the others; its time is that of load_options,
 * or the deadline if that is sooner (HUTCH_TIMED_OUT). A task that leads is asked to end,
 * which the loader sees by hutch_loading_wanted when all other callers have left.
 *
 * A loader that returns HUTCH_WOULD_BLOCK, having taken a reference to its loading,
 * has its answer given later from anywhere, by hutch_loading_fulfil, _fail or
 * _abandon; until then no thread is occupied. load_options->parent is what the
 * load is needed for; NULL: nothing, within a loader too. release (may be NULL)
 * is called once with context when the loader will not be called any more, before
 * the completion; also if the submission failed. A close cancels loads whose
 * loader does not run. Since 0.1.
 */
HUTCH_API hutch_status hutch_load_async(hutch_cache *cache, const void *key, size_t key_size,
                                        hutch_loader loader, void *context,
                                        hutch_release release,
                                        const hutch_load_options *load_options,
                                        const hutch_task_options *options, hutch_task **task);

/* hutch_wait_all - hutch_queue_wait_all for the cache's queue. Since 0.1. */
HUTCH_API hutch_status hutch_wait_all(hutch_cache *cache, int64_t timeout);

#ifdef __cplusplus
}
#endif
#endif /* HUTCH_TASKS_H */
