/*
 * hutch.h - an embeddable cache: a memory tier above a disk tier
 *
 * SPDX-License-Identifier: MIT
 *
 *   hutch_cache *cache;
 *   if (hutch_open("/var/tmp/thumbnails", NULL, &cache) != HUTCH_OK) {
 *     fprintf(stderr, "%s\n", hutch_error_words());
 *     return 1;
 *   }
 *   hutch_put_options options = {.struct_size = sizeof options,
 *                                .time_to_live = HUTCH_HOUR};
 *   if (hutch_put(cache, HUTCH_STR("logo"), data, size, &options, NULL) != HUTCH_OK)
 *     fprintf(stderr, "%s\n", hutch_error_words());
 *   hutch_value *value;
 *   if (hutch_get(cache, HUTCH_STR("logo"), &value) == HUTCH_OK) {
 *     show(hutch_value_data(value), hutch_value_size(value));
 *     hutch_value_release(value);
 *   }
 *   hutch_close(cache);
 *
 * A cache stores values by key in two tiers. The memory tier holds the values that are
 * used most. The disk tier is a directory: it holds more values, and they survive the end
 * of the process. With a directory of NULL, a cache has a memory tier only. A cache
 * enforces limits, so it may evict an entry at any time. A get never returns a value that
 * is older than the newest completed put of the key, and never returns a part of a value.
 *
 * READ FIRST: hutch_open, hutch_close; hutch_put, hutch_get, hutch_value_data,
 * hutch_value_size, hutch_value_release; hutch_remove, hutch_clear; hutch_add,
 * hutch_load; hutch_set_limits, hutch_error_words. The rest of this header is a
 * reference. hutch_tasks.h declares tasks, queues, completion ports for event loops and
 * the asynchronous calls. They are in the same library.
 *
 * ERRORS. A function that can fail returns a hutch_status. HUTCH_OK (0) means that the
 * call is done. A number above 0 is an answer that is not a failure (HUTCH_NOT_FOUND, for
 * example). A number below 0 is a failure. HUTCH_PARTIAL is above 0: the put is in one
 * tier and not in the other. A caller that needs the value in both tiers compares with
 * HUTCH_OK and does not test for `< 0`. hutch_error_words returns the text of this
 * thread's last failure. The numbers never change.
 *
 * LIFETIMES
 *   A handle that a function stores in *out is a reference. The caller releases it with
 *   the handle's own release function (for a cache: hutch_close). hutch_close shuts a
 *   cache down; calls through other references then return HUTCH_CLOSED. A value stays
 *   valid and unchanged until hutch_value_release, even if its entry is removed or its
 *   cache is closed. A cursor keeps its cache alive.
 *
 * THREADS
 *   The library is thread-safe: any thread may call any function at any time, also on the
 *   same handle, unless the function's comment says otherwise. A reference must not be
 *   used after its release. A put that has returned is seen by every later get. No
 *   function waits for a reader, except a put for which a database's log has no room (see THE
 *   DIRECTORY). The library calls no callback while it holds a lock of its own. A callback
 *   returns: it does not leave by longjmp or by an exception of C++. A signal handler calls no
 *   function of the library, and no thread is cancelled (pthread_cancel) within one. A call needs
 *   at most 64 KiB of its thread's stack, beside what callbacks need, and may change errno.
 *   dlclose does not unload the library.
 *
 * The notes at the end of this header describe processes that share a directory, fork,
 * the directory itself, what a crash leaves, and write-on-eviction.
 *
 * CONVENTIONS
 *   Arguments. A call returns HUTCH_INVALID_ARGUMENT for NULL where a pointer is needed,
 *   for an empty key, for a size that no object can have, and for a negative duration. It
 *   returns HUTCH_UNSUPPORTED for an enumerator or a flag that this library does not
 *   define. In either case the call does nothing else. A function writes to its
 *   out-parameters only as its comment says; where the comment names no answer, with
 *   HUTCH_OK, HUTCH_PARTIAL and HUTCH_BUFFER_TOO_SMALL. A failed call sets *out to NULL
 *   where *out is a handle.
 *
 *   Structs. A struct begins with its own size. The caller sets struct_size before the
 *   call, also in a struct that the library fills in. Zero is the default of every field
 *   of every struct that is passed to a call, and NULL means a struct of zeros.
 *   A program that was compiled with another version of this header may pass another
 *   size. Fields that a shorter struct lacks have their defaults. The part of a longer
 *   struct that the library does not know must be zero, or else the call returns
 *   HUTCH_UNSUPPORTED. The library fills in a shorter struct up to its end, and sets the
 *   unknown part of a longer one to zero. Fields named reserved must be zero. A struct_size
 *   that no struct has (below 8, above 4,096, no multiple of 8) is HUTCH_INVALID_ARGUMENT.
 *
 *   Units. Times are int64_t nanoseconds; a time of day is Unix time. Sizes are bytes.
 *   The system's clock is read in steps of a few milliseconds, so an entry may be seen one
 *   step longer than its time to live or to idle says. An entry's own time to live of 1 ns
 *   has ended when the call that sets it returns.
 *   HUTCH_NO_LIMIT means that a size or a count has no limit. HUTCH_FOREVER means that a
 *   duration has no end.
 *
 *   Keys and values. A key has 1 to HUTCH_KEY_MAX bytes, of any content. HUTCH_STR("key")
 *   passes a literal. A value may have no bytes; its pointer in a put may then be NULL.
 *   The library aligns the data of a value to 16 bytes.
 *
 *   Callbacks. A callback is fn(void *context, ...). Where the library keeps a callback,
 *   the call takes a release function too. The library calls it exactly once, with the
 *   context, when it no longer uses the context; it does so also if the call failed.
 *   A callback may call any function. The functions that wait (hutch_close,
 *   hutch_flush, hutch_maintain, hutch_queue_run, the waits for tasks, groups and
 *   queues) return HUTCH_DEADLOCK within a callback of the same cache or queue. The
 *   callbacks of a tier view, of a cache's tasks and of a cache's queue are callbacks of
 *   the cache, whatever thread makes them. If several caches have one queue, a callback of
 *   the queue or of a task is one of all these caches, and a callback of one of the caches
 *   is one of the queue, but not of the other caches. With a timeout of 0 the waits only
 *   look, within a callback too. A clock must not call the library, and a codec must not
 *   call the cache that it belongs to.
 *
 *   Every _release function and hutch_close accept NULL.
 *
 * Supported: 64-bit Linux with glibc 2.34 or newer, x86_64 and aarch64, with pages of memory
 * of 4, 16 or 64 KiB.
 */
#ifndef HUTCH_H
#define HUTCH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__) || defined(__clang__)
#define HUTCH_API __attribute__((visibility("default")))
#else
#define HUTCH_API
#endif

/* The version of this header. */
#define HUTCH_VERSION_MAJOR 0
#define HUTCH_VERSION_MINOR 1
#define HUTCH_VERSION_PATCH 0
#define HUTCH_VERSION_STRING "0.1.0"
/* True if this header has that version or a later one: #if HUTCH_CHECK_VERSION(0, 2, 0). */
#define HUTCH_CHECK_VERSION(major, minor, patch)                                     \
  (HUTCH_VERSION_MAJOR * 1000000 + HUTCH_VERSION_MINOR * 1000 + HUTCH_VERSION_PATCH >= \
   (major) * 1000000 + (minor) * 1000 + (patch))
/* Grows by one when a function or a field is added. See hutch_abi_version. */
#define HUTCH_ABI_VERSION 1

/* A string literal as a pointer and a size: hutch_put(cache, HUTCH_STR("key"), ...). */
#define HUTCH_STR(literal) ("" literal ""), (sizeof("" literal "") - 1)

/* The longest key, in bytes. */
#define HUTCH_KEY_MAX 65535
/* The longest tag, in bytes. */
#define HUTCH_TAG_MAX 255
/* The longest suffix of a content file's name, in bytes. */
#define HUTCH_SUFFIX_MAX 15

/* Durations, in nanoseconds. */
#define HUTCH_MICROSECOND INT64_C(1000)
#define HUTCH_MILLISECOND INT64_C(1000000)
#define HUTCH_SECOND INT64_C(1000000000)
#define HUTCH_MINUTE (60 * HUTCH_SECOND)
#define HUTCH_HOUR (60 * HUTCH_MINUTE)
#define HUTCH_DAY (24 * HUTCH_HOUR)
/* As a duration: without end. As a time to live or to idle: none, even if the tier or the
   cache has one. */
#define HUTCH_FOREVER INT64_MAX
/* As a limit of a size or of a count: none. */
#define HUTCH_NO_LIMIT UINT64_MAX
/* As the cost of a put: a cost of 0, where 0 would mean that no cost is given. */
#define HUTCH_NO_COST UINT64_MAX
/* As a tier's max_entry: a quarter of the tier's current cost limit. */
#define HUTCH_MAX_ENTRY_QUARTER (UINT64_MAX - 1)

/* ------------------------------------------------------------------ status */

/* The result of a call. Numbers that are not listed are reserved. */
typedef int32_t hutch_status;
enum {
  HUTCH_OK = 0,
  /* answers */
  HUTCH_NOT_FOUND = 1,        /* no such entry; for a cursor: the end */
  HUTCH_EXISTS = 2,           /* the key has an entry already */
  HUTCH_CONFLICT = 3,         /* the entry has another version */
  HUTCH_PARTIAL = 4,          /* stored, but not in every tier; see hutch_put_result */
  HUTCH_SUPERSEDED = 5,       /* a later write of the key was done first; nothing changed */
  HUTCH_OPTIONS_DIFFER = 6,   /* opened, but the directory has, or is open with, other
                                 options */
  HUTCH_WOULD_BLOCK = 7,      /* a queue is full, or the awaited event has not happened */
  HUTCH_BUFFER_TOO_SMALL = 8, /* nothing copied; the call gives the size that is needed */
  HUTCH_CANCELLED = 9,        /* abandoned or cancelled before it was done */
  /* failures */
  HUTCH_INVALID_ARGUMENT = -1, /* NULL, a bad size, a negative duration */
  HUTCH_NO_MEMORY = -2,        /* an allocation failed; nothing changed */
  HUTCH_CLOSED = -3,           /* the cache has been closed */
  HUTCH_FORKED = -4,           /* the handle belongs to the parent process: see FORK */
  HUTCH_BUSY = -5,             /* the directory is in use: another process has it open, see
                                  HUTCH_SHARING_*, or is stopped within a call */
  HUTCH_IO = -6,               /* a file or database call failed; see hutch_error */
  HUTCH_NO_SPACE = -7,         /* the file system or the quota is full */
  HUTCH_TOO_LARGE = -8,        /* larger than any tier accepts */
  HUTCH_CORRUPT = -9,          /* the directory's manifest is damaged */
  HUTCH_NEWER_FORMAT = -10,    /* the directory was written by a newer Hutch; untouched */
  HUTCH_UNSUPPORTED = -11,     /* not in this library, or not for this cache */
  HUTCH_WRONG_TYPE = -12,      /* the value is not of the kind that the call works on */
  HUTCH_OVERFLOW = -13,        /* the result does not fit; nothing changed */
  HUTCH_DEADLOCK = -14,        /* the call would wait for itself, within a callback or a loader */
  HUTCH_BAD_DIRECTORY = -15,   /* cannot be made, read or written, or is not a cache's */
  HUTCH_TIER_DOWN = -16,       /* the disk tier is out of service */
  HUTCH_TIMED_OUT = -17,       /* the given time has passed */
  HUTCH_LOAD_FAILED = -18      /* the loader failed; hutch_last_error has its code and words */
};

/* A thread's last failure, copied out by hutch_last_error. */
typedef struct hutch_error {
  size_t struct_size;
  hutch_status status;  /* below 0; HUTCH_OK if this thread has had no failure */
  int32_t system_error; /* errno, or 0; with HUTCH_LOAD_FAILED the loader's code */
  int32_t sqlite_error; /* SQLite's extended result code, or 0 */
  uint32_t reserved;
  char words[232];      /* what failed and why; UTF-8, ends with NUL */
} hutch_error;

/* ------------------------------------------------------------------- types */

typedef struct hutch_cache hutch_cache;   /* a cache, or one tier of it; counted */
typedef struct hutch_value hutch_value;   /* immutable bytes with their record; counted */
typedef struct hutch_cursor hutch_cursor; /* a walk over the entries; has one owner */
typedef struct hutch_writer hutch_writer; /* a put whose value comes in pieces; has one owner */
typedef struct hutch_object hutch_object; /* a host's object in a cache; counted */
typedef struct hutch_queue hutch_queue;   /* runs tasks; counted. See hutch_tasks.h */

/* Called once, when the library no longer uses a context or an object. */
typedef void (*hutch_release)(void *context);
/* The time, in Unix nanoseconds. */
typedef int64_t (*hutch_clock)(void *context);
/* Reports how much of a long call is done, and of how much (0: not known). It returns 0 to
   continue, or another number to stop the call. */
typedef int32_t (*hutch_progress)(void *context, uint64_t done, uint64_t total);

/* A tier. */
enum {
  HUTCH_TIER_MEMORY = 1,
  HUTCH_TIER_DISK = 2
};

/*
 * Eviction: how a tier chooses the entries that it evicts. options.policy is for the memory
 * tier, options.disk_policy for the disk tier.
 *
 * The default policy of the memory tier is made for the most hits. If entries differ in
 * cost, it weighs how often and how recently an entry is used against its cost. Small
 * entries therefore stay before a large entry that is used as often as each of them. A
 * large entry stays if it is used often enough. The policy weighs cost only if the cost
 * limit is the limit that is reached and costs differ by more than a factor of two. It
 * treats all costs from 2^31 on as equal. The other policies ignore cost. Only reads are uses
 * to the default policy: a put that replaces an entry does not keep it. A key whose entry was
 * used, and is removed or expires, is remembered as an evicted one is.
 *
 * The disk tier counts the uses that memory answers when an entry is next to be evicted. A
 * touch counts as a write. Each process evicts by its own policy. HUTCH_POLICY_ADAPTIVE is
 * the policy for which the storage is made, and is its default:
 *   HUTCH_STORAGE_LOG: an entry that was read twice, or whose key was evicted lately, is
 *   kept for longer than others (S3-FIFO). LRU and LFU are approximate (CLOCK, and CLOCK
 *   with a count up to two), FIFO is exact.
 *   SQLite: LRU. LRU and LFU are exact up to 4,096 entries, and go by samples above; FIFO is
 *   exact. Reads are counted together, a while later: those of an entry that a put has
 *   replaced meanwhile are uses of the new entry to LFU.
 */
enum {
  HUTCH_POLICY_DEFAULT = 0, /* the library's choice: adaptive */
  HUTCH_POLICY_LRU = 1,     /* least recently used; exact up to 4,096 entries */
  HUTCH_POLICY_LFU = 2,     /* least frequently used; exact likewise */
  HUTCH_POLICY_FIFO = 3,    /* first in, first out; exact likewise */
  HUTCH_POLICY_ADAPTIVE = 4 /* follows the best of several policies on a sample of the
                               keys, and counts cost */
};

/* The tiers in which a put stores. */
enum {
  HUTCH_WRITE_DEFAULT = 0,     /* of a put: the cache's policy; of a cache: through */
  HUTCH_WRITE_THROUGH = 1,     /* in both tiers */
  HUTCH_WRITE_MEMORY = 2,      /* in memory only; the put removes the key from disk */
  HUTCH_WRITE_DISK = 3,        /* on disk only; the put removes the key from memory. In a
                                  cache in memory HUTCH_UNSUPPORTED */
  HUTCH_WRITE_ON_EVICTION = 4  /* in memory, and on disk when memory evicts the entry; see
                                  WRITING ON EVICTION at the end. In a cache that shares
                                  its directory: through */
};

/* Where the disk tier keeps entries. A directory keeps the kind of its first opening: a log,
   or a SQLite database with or without files beside it. */
enum {
  /* An existing directory: its own kind. A new one: log; but mixed on btrfs, ZFS, bcachefs,
     FUSE and network file systems, where the logger is told of it (HUTCH_LOG_INFO). There a
     store to mapped memory may end the process, since space that was allocated before is not
     certain, or the server of the file system may be gone. */
  HUTCH_STORAGE_DEFAULT = 0,
  HUTCH_STORAGE_MIXED = 1,  /* a database; values above inline_threshold in own files */
  HUTCH_STORAGE_SQLITE = 2, /* a database with every value */
  HUTCH_STORAGE_FILE = 3,   /* a database, and every value in a file of its own */
  HUTCH_STORAGE_LOG = 4     /* the default. No database: a log, and values above
                               inline_threshold in own files; see THE LOG STORE */
};

/*
 * Durability: the failures that a completed put survives. The strongest durability of all
 * openings of a directory holds, in this process and in those that share the directory. An
 * opening that asks for a weaker one gets HUTCH_OPTIONS_DIFFER. If the disk refuses what a
 * stronger one needs, that of the other openings stays: the opening gets
 * HUTCH_OPTIONS_DIFFER if this process has the directory open, and fails with HUTCH_IO
 * otherwise.
 */
enum {
  HUTCH_DURABILITY_DEFAULT = 0, /* process */
  HUTCH_DURABILITY_PROCESS = 1, /* the end of the process, killed or not. A loss of
                                   power may lose all entries */
  HUTCH_DURABILITY_POWER = 2,   /* also a loss of power, except for the entries that were
                                   written last */
  HUTCH_DURABILITY_SYNC = 3     /* also a loss of power, without exception: a put returns
                                   when the disk has the entry */
};

/* Whether a read from disk verifies the checksum of the value. */
enum {
  HUTCH_CHECKSUMS_DEFAULT = 0, /* always */
  HUTCH_CHECKSUMS_ALWAYS = 1,
  HUTCH_CHECKSUMS_NEVER = 2 /* a read may return a damaged value: it checks only sizes and
                               the structure of the database. A log always verifies
                               (HUTCH_OPTIONS_DIFFER) */
};

/*
 * Which processes may have the directory open at one time. Each opening chooses this anew;
 * the directory does not store it. See SEVERAL PROCESSES at the end.
 */
enum {
  HUTCH_SHARING_DEFAULT = 0,   /* shared; exclusive if options.write_policy is
                                  HUTCH_WRITE_ON_EVICTION */
  HUTCH_SHARING_EXCLUSIVE = 1, /* one process; a second one gets HUTCH_BUSY */
  HUTCH_SHARING_SHARED = 2     /* several processes, all of them in this way */
};

/* ----------------------------------------------------------------- library */

/*
 * hutch_version - the library's version, "0.1.0"
 *
 * The result is a static string, never NULL. The header's version is HUTCH_VERSION_STRING.
 * Since 0.1.
 */
HUTCH_API const char *hutch_version(void);

/*
 * hutch_abi_version - the library's HUTCH_ABI_VERSION
 *
 * A program that was compiled with HUTCH_ABI_VERSION n runs with every library of the same
 * soname that returns n or more. Since 0.1.
 */
HUTCH_API uint32_t hutch_abi_version(void);

/*
 * hutch_status_name - the name of a status, "HUTCH_NOT_FOUND"
 *
 * The result is a static string, never NULL. For a number that is not a status it is
 * "HUTCH_UNKNOWN". Since 0.1.
 */
HUTCH_API const char *hutch_status_name(hutch_status status);

/*
 * hutch_status_text - the meaning of a status, "there is no such entry"
 *
 * The result is a static string, never NULL. Since 0.1.
 */
HUTCH_API const char *hutch_status_text(hutch_status status);

/*
 * hutch_error_words - this thread's last failure, in words
 *
 * The text is the one in hutch_error: the path if there is one, what failed, the number
 * that was refused, and the system's reason. The result is never NULL; it is "" if this
 * thread has had no failure. It is valid until the thread's next failure. It is UTF-8: a path
 * or words of the host that are not have question marks in it. Since 0.1.
 */
HUTCH_API const char *hutch_error_words(void);

/*
 * hutch_last_error - this thread's last failure, by value
 *
 * The call copies the last failure of this thread's calls to *out (struct_size set). Only
 * failures are recorded: an answer such as HUTCH_NOT_FOUND changes nothing. Within a
 * callback, the call reports the failures of the callback's own calls. When the callback
 * has returned, the thread's last failure is again what it was before the callback. The
 * call returns HUTCH_OK, HUTCH_INVALID_ARGUMENT or HUTCH_UNSUPPORTED; its own failures are
 * not recorded. Since 0.1.
 */
HUTCH_API hutch_status hutch_last_error(hutch_error *out);

/* -------------------------------------------------------------------- open */

/* The output of a codec; valid during its call. */
typedef struct hutch_buffer hutch_buffer;

/*
 * One direction of a codec: makes output from the size bytes at input, which stay valid
 * during the call. It returns HUTCH_OK or a failure. It must not call the cache that it
 * belongs to.
 */
typedef hutch_status (*hutch_codec_function)(void *context, const void *input, size_t size,
                                             hutch_buffer *output);

/*
 * hutch_buffer_resize - room in a codec's output
 *
 * The call makes size the size of the output. It returns a pointer to the output, which
 * keeps the bytes written before. It may be called again, with a larger or a smaller size;
 * pointers that it returned earlier are then invalid. NULL: the allocation failed, or size
 * is larger than the value that is being decoded. The codec then returns a failure. Since
 * 0.1.
 */
HUTCH_API void *hutch_buffer_resize(hutch_buffer *buffer, size_t size);

/*
 * The functions between a host's objects and values, for options.object_codec: see OBJECTS IN
 * BOTH TIERS. They return HUTCH_OK or a failure, are called with no lock held, on the thread
 * of the call that needs them, and must not call the cache that they belong to.
 */
typedef struct hutch_object_codec {
  size_t struct_size;
  /* Makes the value of an object, by hutch_buffer_resize, within hutch_put_object. The bytes
     are the value's whole state: the object may be made of them by another process. */
  hutch_status (*encode)(void *context, void *object, hutch_buffer *output);
  /* Makes an object of a value, which is valid during the call, within hutch_get_object;
     *object receives it. */
  hutch_status (*decode)(void *context, hutch_value *value, void **object);
  /* Releases an object that decode has made. NULL: none is needed. It may be called after
     context_release. */
  hutch_release release;
  void *context;
  hutch_release context_release; /* called once, when the cache no longer uses context */
} hutch_object_codec;

/*
 * The limits of one tier. Every limit is hard: a put makes room before it returns. An
 * eviction takes expired entries first; in a memory tier of more than 256 entries, a put
 * looks for them among 256 entries, and a trim among all.
 *
 * A limit of 0 is not set. In hutch_open, such a limit is the one that the directory has,
 * or else the default that hutch_options names. In hutch_set_limits, it stays as it is.
 * HUTCH_NO_LIMIT means that there is no limit, and HUTCH_FOREVER that there is no time to
 * live or to idle. hutch_limits returns the same numbers.
 *
 * The directory stores the limits of the disk tier: they hold for every later opening that
 * does not set others. An opening that changes them logs that.
 */
typedef struct hutch_tier_limits {
  uint64_t cost;        /* bytes charged. Memory: what the entry takes there, of key,
                           value and the rest, or its explicit cost. The pages in memory
                           are a few percent more; if sizes have changed so that holes
                           between entries are of no use, the tier keeps fewer entries
                           until they are. A tier of less than 64 MB keeps fewer entries
                           for what it has beside them too. Disk: the space of the entries, of the
                           database's log and of removed files that are not yet
                           deleted. Of a database's limit an eighth, at most 16 MiB, is
                           reserved for its log. See THE LOG STORE for a log's, and
                           HUTCH_POLICY_DEFAULT for the entries that a tier evicts */
  uint64_t count;       /* entries */
  uint64_t max_entry;   /* the largest charge of one entry; the tier does not store a
                           larger entry. HUTCH_MAX_ENTRY_QUARTER: a quarter of cost */
  int64_t time_to_live; /* from the write, for entries without their own */
  int64_t time_to_idle; /* from the last access, for entries without their own. See
                           HUTCH_OPEN_AGES_ON_TRIM. Disk: a read that memory answers is an
                           access too */
  uint64_t min_free;    /* disk only: bytes to keep free on the file system that holds
                           the directory. If less is free, for whatever reason, the tier
                           evicts the least recently used entries. It refuses a put for
                           which it finds no room (HUTCH_OUTCOME_NO_SPACE). The library
                           looks now and then; a database also after every 128 KiB
                           written. Ignored in memory */
  uint64_t reserved[10]; /* zero */
} hutch_tier_limits;

/* The limits of a cache. A tier view uses only the part of its own tier. */
typedef struct hutch_cache_limits {
  size_t struct_size;
  hutch_tier_limits memory;
  hutch_tier_limits disk;
} hutch_cache_limits;

/* How to open a cache. All zero: the defaults, which the fields' comments name. In a second
   opening of a directory, a field of 0 means what the open cache has, and so does a flag that is
   not given, except HUTCH_OPEN_DRAIN_RELEASES and HUTCH_OPEN_AGES_ON_TRIM: an opening without
   one of them differs from a cache that has it. Every clock differs from that of the open
   cache, even the same one. */
typedef struct hutch_options {
  size_t struct_size;
  uint32_t flags;      /* HUTCH_OPEN_* or 0 */
  uint32_t policy;     /* HUTCH_POLICY_*; DEFAULT */
  uint32_t storage;    /* HUTCH_STORAGE_*; DEFAULT, a new directory: LOG */
  uint32_t durability; /* HUTCH_DURABILITY_*; DEFAULT */
  uint32_t sharing;    /* HUTCH_SHARING_*; DEFAULT */
  /* The largest number of tasks that the cache runs at once, at most 256. 0: 2. The cache
     makes a thread for each, and one more for deadlines and maintenance when all of them
     are busy. A cache in memory makes none before it has work for it: a task, an object, an
     entry whose time can end, or 16 MiB of entries, which come into huge pages. See
     HUTCH_OPEN_NO_THREADS. */
  uint32_t workers;
  /* A value with more bytes than this gets a file of its own.
     HUTCH_STORAGE_LOG: 0: 1 MiB; never more than a quarter of a segment, which is 256 KiB
     under the default limit of cost.
     HUTCH_STORAGE_MIXED: HUTCH_NO_LIMIT: no value does. 0: 20,480. From that size on, a put
     and a get of a file are as fast as those of a row, or faster. Puts are an exception on a
     file system that is slow to make and remove files: a cache on ext4 that is written more
     than it is read does well with 262,144 (figures: Tests/Benchmarks/README.md).
     HUTCH_STORAGE_SQLITE and HUTCH_STORAGE_FILE do not use it. */
  uint64_t inline_threshold;
  /* 0: cost 64 MiB, max_entry a quarter of it; no other limit */
  hutch_tier_limits memory;
  /* 0: what the directory has. A new directory: cost 50,000,000 bytes, max_entry a
     quarter of it, time_to_live 30 days; no other limit */
  hutch_tier_limits disk;
  /* The time, in Unix nanoseconds, in place of the system's clocks: for tests. The
     library calls it with no lock held, on the thread of a call, or of the worker that
     runs a task. It must not call the library. NULL: the system's clocks; a change of
     the wall clock then neither expires entries nor keeps them. */
  hutch_clock clock;
  void *clock_context;
  hutch_release clock_release;
  uint32_t on_memory_warning; /* HUTCH_SHRINK_*; see hutch_notify */
  uint32_t on_background;     /* HUTCH_SHRINK_* */
  uint32_t low_water;         /* percent, for HUTCH_SHRINK_LOW_WATER: 1 to 100; 0: 50 */
  uint32_t write_policy;      /* HUTCH_WRITE_*; for puts that do not name one */
  uint32_t checksums; /* HUTCH_CHECKSUMS_*; DEFAULT */
  uint32_t codec_id;  /* not 0 with a codec; stored with each entry */
  /* A codec, for compression or encryption. The disk tier stores the output of
     codec_encode, and codec_decode restores the value. The memory tier holds values as
     they are. Keys and extended data are stored as they are. A cache does not see an
     entry of a codec with another id; the entry is kept for a cache with that codec.
     An entry that was put without a codec is read without one. A failure of codec_encode
     is the disk tier's outcome HUTCH_OUTCOME_FAILED. If codec_decode fails with
     HUTCH_CORRUPT, makes a value of another size, or asks for more than the value's size,
     the entry is removed; with any other failure it is kept, and the answer is HUTCH_IO.
     The library calls a codec with no lock held, on whatever thread needs it. NULL: none. */
  hutch_codec_function codec_encode;
  hutch_codec_function codec_decode;
  void *codec_context;
  hutch_release codec_release;
  uint64_t queue_length;  /* how many tasks may wait; 0, HUTCH_NO_LIMIT: any number */
  int64_t close_deadline; /* how long a close waits for tasks; 0: 30 s */
  uint32_t disk_policy;   /* HUTCH_POLICY_*: how this process evicts from the disk tier */
  uint32_t reserved;      /* zero */
  /* The queue that runs the cache's tasks: one of hutch_queue_create, which several caches
     may have, or hutch_shared_queue. workers and queue_length must then be 0, since they
     are the queue's. The cache keeps a reference to the queue until its own last reference
     is released. See ONE QUEUE FOR SEVERAL CACHES in hutch_tasks.h. NULL: a queue of the
     cache's own. */
  hutch_queue *queue;
  /* Objects in both tiers; copied. NULL: objects are in memory only, under keys of their
     own. See OBJECTS IN BOTH TIERS. */
  const hutch_object_codec *object_codec;
} hutch_options;

enum {
  /* Also accept a directory on a network file system. Only this machine may have it
     open, and the library cannot check that. */
  HUTCH_OPEN_NETWORK_DIRECTORY = 1,
  /* Also open if the directory cannot be used, for whatever reason. The disk tier is
     then down (HUTCH_STATE_DOWN), and in service as soon as the directory can be used; if
     other processes have opened the directory by then, as soon as they have closed it.
     If the directory is removed later, it is made again. A directory whose kind cannot be
     seen at the opening must be of the kind that options.storage names, or a log by default;
     else the tier stays down. */
  HUTCH_OPEN_DISK_OPTIONAL = 2,
  /* Only hutch_drain_releases releases host objects, on its caller's thread, until the
     cache is closed. */
  HUTCH_OPEN_DRAIN_RELEASES = 4,
  /* The cache makes no threads: hutch_maintain runs its tasks and does its
     maintenance. workers must be 0. With options.queue the queue runs the tasks, and
     hutch_maintain does the maintenance alone. */
  HUTCH_OPEN_NO_THREADS = 8,
  /* The directory may contain other files although it is not a cache's yet. Without
     this flag the answer is HUTCH_BAD_DIRECTORY. The library leaves such files alone in
     either case. */
  HUTCH_OPEN_NONEMPTY = 16,
  /* Open only a directory that contains a cache. Else the answer is HUTCH_BAD_DIRECTORY,
     and the call makes nothing. */
  HUTCH_OPEN_EXISTING = 32,
  /* The tiers' times to live and to idle act in trims alone: for all other calls of this
     process, and for its maintenance, entries without times of their own do not expire.
     hutch_trim with HUTCH_TRIM_EXPIRED removes the entries whose time has ended, and
     HUTCH_TRIM_TO_COST and HUTCH_TRIM_TO_COUNT remove them before others. A read puts the end
     of a time to idle off, as ever. An entry's own times end it as ever. Other processes go by
     their own flag. In a log, maintenance then looks for expired entries once a minute. */
  HUTCH_OPEN_AGES_ON_TRIM = 64
};

/*
 * hutch_open - open a cache
 *
 * directory: a path (bytes, ends with NUL, not interpreted). The call makes the directory
 * and its parents if they do not exist. NULL: a cache in memory only, which uses no file;
 * options of the disk tier have no effect there, but HUTCH_WRITE_DISK is HUTCH_UNSUPPORTED.
 * options: NULL means the defaults. On HUTCH_OK and on HUTCH_OPTIONS_DIFFER, *out is a new
 * reference, which hutch_close ends. On a failure it is NULL.
 *
 * If this process has the directory open already, *out shares that cache, and the cache
 * keeps its options and limits, except that a stronger durability holds from then on. If
 * options sets different ones, the answer is HUTCH_OPTIONS_DIFFER. With a codec of another
 * codec_id it is HUTCH_INVALID_ARGUMENT, since values would be stored without that codec;
 * functions with the same id are those of the open cache. An object codec of other
 * functions or another context is HUTCH_INVALID_ARGUMENT too. If this process is closing
 * the directory, the call waits for the end of the close. HUTCH_DEADLOCK: a callback of
 * the cache that is being closed made the call.
 *
 * A directory never changes its kind of storage. If options.storage names another one, the
 * cache has the directory's, and the answer is HUTCH_OPTIONS_DIFFER.
 *
 * If an open directory becomes unusable or is removed, the disk tier goes down and the
 * memory tier goes on: puts return HUTCH_PARTIAL. Until it is back, the disk tier has no
 * entries for a read or a condition; other writes to it are HUTCH_TIER_DOWN. The cache
 * tries the directory again at its path every second, and with a put after such a pause; it
 * makes a directory that is gone anew only with HUTCH_OPEN_DISK_OPTIONAL. Entries that were
 * written or removed meanwhile do not come back with the directory. If another process has
 * made a removed directory again, the tier stays down until that process has closed the
 * directory.
 *
 * A directory with a damaged manifest opens: the call renames the manifest to
 * hutch-<digits>.damaged (16 hexadecimal digits), and the cache starts empty. The newest such
 * file stays for a week and does not count against the limits. In a cache's directory, a
 * manifest that is not a SQLite database counts as damaged. In the directory of a log the
 * file manifest.sqlite has no entries: where it is damaged or missing, it is made anew, the
 * entries stay, and the damaged file stays until another one is set aside.
 *
 * The library touches no file that it has not made. Its files are manifest.sqlite (with
 * -wal and -shm), hutch.lock, hutch.shared, hutch-index, hutch-log, hutch-checkpoint,
 * hutch-stub.new, and those whose names begin with "hutch-" and 16 hexadecimal digits, in
 * the directory and in its folders content and trash. The library
 * refuses a directory that is not empty and is not a cache's, unless HUTCH_OPEN_NONEMPTY is
 * given. A directory that has nothing but removed values, a checkpoint and temporary files
 * of the library counts as empty: a removal of the directory beside a running cache may have
 * left them. It follows no symbolic link in the directory.
 *
 * Failures: HUTCH_BAD_DIRECTORY (the directory cannot be made, opened or written; it is a
 * file; it is not empty and not a cache's; it has a file of another program under the
 * manifest's name; or its path has more than 4,046 bytes, or with a database more than
 * SQLite takes, about 470; the words begin with the path), HUTCH_BUSY, HUTCH_FORKED (the parent had
 * it open at a fork that could not hand it on), HUTCH_NEWER_FORMAT (the directory is
 * unchanged), HUTCH_UNSUPPORTED (a network file system, or options that this library does
 * not know), HUTCH_INVALID_ARGUMENT (a negative duration, an empty path, a codec without an
 * id or a function, a low_water above 100, more than 256 workers, workers or a queue_length
 * beside a queue, workers beside HUTCH_OPEN_NO_THREADS, HUTCH_WRITE_ON_EVICTION with
 * HUTCH_SHARING_SHARED), HUTCH_NO_SPACE, HUTCH_IO, HUTCH_NO_MEMORY. After a failure too, the
 * library calls the release functions of the clock, the codec and the object codec, if the
 * struct_size of options is one that a struct has (and, for the object codec, if its own is).
 * Since 0.1.
 */
HUTCH_API hutch_status hutch_open(const char *directory, const hutch_options *options,
                                  hutch_cache **out);

/*
 * hutch_close - shut a cache down and give up the reference
 *
 * The call completes queued work, closes the directory (unless the process has it open a
 * second time) and releases the caller's reference. Calls that are in progress complete.
 * Later calls, through other references or tier views, return HUTCH_CLOSED. A close of a
 * tier view only releases the reference to the view.
 *
 * Of the tasks of this opening, queued writes are carried out (but those that a group
 * holds are cancelled), and queued reads and queued host work are cancelled. Every
 * completion is made, or is in its port, before the call returns. After close_deadline no
 * further task starts but clears, queued writes are cancelled too, and running tasks end
 * by themselves: HUTCH_TIMED_OUT.
 *
 * HUTCH_OK: also for NULL. HUTCH_CLOSED: another call has closed the cache; the reference
 * is released nevertheless. HUTCH_FORKED: the fork could not hand the cache on; it is the
 * parent's, and unharmed. After a fork each process closes its own cache, and the other
 * process goes on. HUTCH_DEADLOCK: a callback of this cache made the call; nothing
 * happened. HUTCH_IO: the cache is closed, but not cleanly, and the next open checks the
 * manifest; or the directory was moved or replaced, or the disk tier is out of service for
 * another reason; or entries that are written on eviction could not be written. An older
 * value whose removal had failed may then be back at the next open, as after a kill. If the
 * directory has been removed, or the index or the manifest from it, or if the disk tier has
 * never been in service, there is nothing left to end cleanly: HUTCH_OK. Since 0.1.
 */
HUTCH_API hutch_status hutch_close(hutch_cache *cache);

/*
 * hutch_destroy - remove a cache from a directory
 *
 * The call deletes every file that the library has made in the directory, and then the
 * directory if it is empty. Files of other programs stay. HUTCH_NOT_FOUND: the directory
 * does not exist, or has no cache. HUTCH_BUSY: this process or another one has it open.
 * HUTCH_INVALID_ARGUMENT: the path is empty. HUTCH_FORKED and HUTCH_DEADLOCK: as in
 * hutch_open. HUTCH_BAD_DIRECTORY: the path is not a directory's, or the manifest is not a
 * cache's. HUTCH_NEWER_FORMAT: a newer library has written it. In all of these cases the
 * call changes nothing. No process may open the directory during the call. Since 0.1.
 */
HUTCH_API hutch_status hutch_destroy(const char *directory);

/*
 * hutch_cache_retain, hutch_cache_release - references
 *
 * retain returns its argument. The release of the last reference without hutch_close also
 * shuts the cache down, after its tasks have ended. The tasks are carried out, even while
 * the cache is suspended. In a cache without workers, the release itself carries them out,
 * and cancels those that wait for the start of a group or for another task's load. If a
 * callback of the cache makes that release, hutch_queue_run or hutch_maintain carries them
 * out before it returns. A completion in a port keeps the cache open until it is drained.
 * Since 0.1.
 */
HUTCH_API hutch_cache *hutch_cache_retain(hutch_cache *cache);
HUTCH_API void hutch_cache_release(hutch_cache *cache);

/*
 * hutch_tier - one tier of a cache, as a cache
 *
 * *out: a new reference to a view of tier HUTCH_TIER_MEMORY or HUTCH_TIER_DISK. A view
 * accepts every call that a cache accepts; hutch_cache_release releases it. The tiers stay
 * coherent:
 *   memory view  put stores in memory and removes the entry on disk; get,
 *                contains, info and conditions see memory only; touch sets the
 *                times in memory only; remove and clear remove the copies in
 *                memory only; flush does nothing
 *   disk view    put stores on disk and removes the copy in memory; get,
 *                contains, info and conditions see the disk only and bring
 *                nothing into memory; touch sets the times on disk and removes
 *                the copy in memory; remove and clear remove the entries on
 *                disk and their copies in memory
 * A view of a view is a view of the same cache. HUTCH_UNSUPPORTED: the cache has no such
 * tier; a cache in memory has no disk tier. Since 0.1.
 */
HUTCH_API hutch_status hutch_tier(hutch_cache *cache, uint32_t tier, hutch_cache **out);

/*
 * hutch_directory - the directory's path as it was given to hutch_open
 *
 * The result is valid as long as the reference. It is NULL for a cache in memory. Since
 * 0.1.
 */
HUTCH_API const char *hutch_directory(const hutch_cache *cache);

/*
 * hutch_get_options - the options in force
 *
 * The call fills in *out (struct_size set): the options of the opening that opened the
 * cache, as the directory, hutch_set_options, hutch_set_limits and later openings have
 * changed them. No field that the cache has a use for is 0: where an option was not set,
 * its default is there. In a cache in memory, the fields of the disk tier are 0, and
 * write_policy is HUTCH_WRITE_MEMORY. The flags are those of that opening. The release
 * functions of the clock and the codecs are NULL, so *out can be passed to hutch_open for
 * another directory; the functions and contexts of the clock and the codec are then valid
 * as long as the host keeps them. queue is no reference of the caller's; it and
 * object_codec are valid as long as the cache. With a queue, workers and queue_length are
 * 0. A view answers as its cache. Since 0.1.
 */
HUTCH_API hutch_status hutch_get_options(hutch_cache *cache, hutch_options *out);

/*
 * hutch_set_options - change options of an open cache
 *
 * The fields policy, disk_policy, workers, on_memory_warning, on_background and low_water
 * may be set, and hold when the call returns. A field of 0 stays as it is. Any other field
 * that is not 0 is HUTCH_UNSUPPORTED, and nothing is changed (limits: hutch_set_limits).
 * HUTCH_INVALID_ARGUMENT: more than 256 workers, or a low_water above 100.
 *
 * policy: the entries in memory stay, in the order in which the former policy would have
 * evicted them, and with about the uses that it has counted. Readers and writers continue
 * meanwhile; each waits at most while one part of the tier changes, some 100 ns for each
 * of its entries. HUTCH_NO_MEMORY: the change is not complete, and may be tried again.
 * disk_policy: the next eviction goes by it. HUTCH_UNSUPPORTED in a cache in memory.
 * workers: tasks that run go on. HUTCH_UNSUPPORTED if the cache has no threads, or if its
 * tasks run on options.queue (hutch_queue_set_width changes that queue). On a view
 * the call changes the options of its cache. Since 0.1.
 */
HUTCH_API hutch_status hutch_set_options(hutch_cache *cache, const hutch_options *options);

/*
 * hutch_flush - wait until all that has been put is in the manifest
 *
 * When the call returns, all writes that were submitted before it are committed. It also
 * writes the entries that HUTCH_WRITE_ON_EVICTION has deferred, and the access times
 * gathered so far. An entry that could not be written stays deferred. Failures: HUTCH_IO,
 * HUTCH_NO_SPACE, HUTCH_TIER_DOWN, HUTCH_DEADLOCK. A cache in memory, and a view of the memory
 * tier: HUTCH_OK, and nothing is done. Since 0.1.
 */
HUTCH_API hutch_status hutch_flush(hutch_cache *cache);

/* ----------------------------------------------------------------- entries */

/* The record of an entry, without its value. */
typedef struct hutch_entry_info {
  size_t struct_size;
  uint64_t version;       /* of the write; a directory never uses one twice */
  int64_t created;        /* time of the last write or touch; hutch_increment and
                             hutch_copy keep it */
  int64_t accessed;       /* time of the last access: exact for entries with a time to
                             idle, else within minutes. In a view of the disk tier without
                             the reads that the memory tier has answered of late */
  int64_t expires;        /* when its time to live ends (its own or the tier's, also with
                             HUTCH_OPEN_AGES_ON_TRIM); 0: never */
  int64_t time_to_idle;   /* its own or the tier's; 0: none */
  uint64_t cost;          /* the explicit cost; 0: none; HUTCH_NO_COST: a cost of 0 */
  uint64_t size;          /* of the value, in bytes */
  uint64_t extended_size; /* of the extended data, in bytes */
  uint64_t checksum;      /* XXH3 (64 bits) of the value; 0: not computed (memory only, or
                             behind a codec) */
  uint32_t tier;          /* the HUTCH_TIER_* that answered */
  uint32_t tag_size;      /* of the tag, in bytes; 0: the entry has none. See hutch_tag */
} hutch_entry_info;

/* How to put. All zero: the defaults. */
typedef struct hutch_put_options {
  size_t struct_size;
  int64_t time_to_live;  /* 0: the tier's; HUTCH_FOREVER: none */
  int64_t time_to_idle;  /* 0: the tier's; HUTCH_FOREVER: none */
  uint64_t cost;         /* replaces the charge in the memory tier; 0: none;
                            HUTCH_NO_COST: a cost of 0, so that the memory tier's cost is
                            the sum of the costs given. The default policy weighs it, see
                            HUTCH_POLICY_DEFAULT */
  const void *extended;  /* bytes to store with the entry; copied */
  size_t extended_size;  /* 0..65,535 */
  uint32_t write_policy; /* HUTCH_WRITE_*; 0: the cache's. A view stores in its tier */
  uint32_t reserved;
  /* The end of the name of the value's file, if the value gets one: an extension such as
     ".jpg", for programs that depend on it. At most HUTCH_SUFFIX_MAX bytes, no slash;
     ends with NUL, copied. NULL or "": no suffix. The rest of the name is random. */
  const char *suffix;
  const void *tag; /* the entry's tag, any bytes; copied. See hutch_remove_tagged */
  size_t tag_size; /* 1..HUTCH_TAG_MAX; 0: no tag, whatever tag is */
} hutch_put_options;

/* The outcome of a put in one tier. */
enum {
  HUTCH_OUTCOME_NONE = 0,      /* the cache has no such tier, or the put was not made */
  HUTCH_OUTCOME_STORED = 1,
  HUTCH_OUTCOME_TOO_LARGE = 2, /* above the tier's max_entry */
  HUTCH_OUTCOME_NO_SPACE = 3,  /* the file system or the quota is full */
  HUTCH_OUTCOME_FAILED = 4,    /* the tier is out of service, or a call failed */
  HUTCH_OUTCOME_REMOVED = 5,   /* the put was not for this tier, which now has no entry */
  HUTCH_OUTCOME_DEFERRED = 6   /* the tier has no entry yet, and gets it when memory
                                  evicts it (HUTCH_WRITE_ON_EVICTION) */
};

/* The result of a put, for each tier. */
typedef struct hutch_put_result {
  size_t struct_size;
  uint64_t version; /* of this write; with HUTCH_EXISTS and HUTCH_CONFLICT, the version
                       of the existing entry; 0 if there is none */
  uint32_t memory;  /* HUTCH_OUTCOME_* */
  uint32_t disk;    /* HUTCH_OUTCOME_* */
} hutch_put_result;

/*
 * hutch_put - store a value
 *
 * The call copies value (and options->extended) and stores it under key, in every tier that
 * accepts it, in place of the older entry. When the call returns, the disk tier has
 * committed the value. options and result may be NULL. The call fills in result unless it
 * returns HUTCH_INVALID_ARGUMENT or HUTCH_UNSUPPORTED.
 *
 * HUTCH_PARTIAL: a tier has stored the value, but not every tier did what the put asks of
 * it (result says which). A tier that does not store the value, whatever the reason,
 * removes its older value. If that removal fails, this cache does not return the older
 * value any more, but after a kill of the process the older value may be back.
 * HUTCH_TOO_LARGE, HUTCH_NO_SPACE, HUTCH_IO, HUTCH_BUSY, HUTCH_TIER_DOWN: no tier has
 * stored the value, and older values are removed likewise. HUTCH_NO_MEMORY, HUTCH_CLOSED,
 * HUTCH_FORKED: nothing changed.
 *
 * WRITING ON EVICTION at the end describes HUTCH_WRITE_ON_EVICTION. Since 0.1.
 */
HUTCH_API hutch_status hutch_put(hutch_cache *cache, const void *key, size_t key_size,
                                 const void *value, size_t value_size,
                                 const hutch_put_options *options, hutch_put_result *result);

/*
 * hutch_get - a counted reference to a value
 *
 * *out: the value, which the caller releases with hutch_value_release. It is NULL if the
 * answer is HUTCH_NOT_FOUND or a failure. A get that finds the value on disk brings it into
 * memory. An access extends an entry's life only through a time to idle. If the entry is
 * damaged, the call removes it and returns HUTCH_NOT_FOUND. HUTCH_IO: the disk could not be
 * read, and the entry stays. Since 0.1.
 */
HUTCH_API hutch_status hutch_get(hutch_cache *cache, const void *key, size_t key_size,
                                 hutch_value **out);

/*
 * hutch_get_into - copy a value into the caller's buffer
 *
 * *size (not NULL) receives the size of the value. If capacity is smaller, the call copies
 * nothing and returns HUTCH_BUFFER_TOO_SMALL. buffer may be NULL if capacity is 0. After any
 * other answer than HUTCH_OK and HUTCH_BUFFER_TOO_SMALL the buffer may have any bytes. In all
 * else the call is hutch_get, but needs no memory for a value; it is faster. Since 0.1.
 */
HUTCH_API hutch_status hutch_get_into(hutch_cache *cache, const void *key, size_t key_size,
                                      void *buffer, size_t capacity, size_t *size);

/* Flags of a look. */
enum {
  HUTCH_LOOK_AT_ONCE = 1, /* do not read the disk: return HUTCH_WOULD_BLOCK instead */
  HUTCH_LOOK_KNOWN = 2,   /* the caller has the value of the version out->version */
  HUTCH_LOOK_OR_SIZES = 4 /* of a value that does not fit, the sizes suffice */
};

/* The result of a look. */
typedef struct hutch_found {
  size_t struct_size;
  size_t size;          /* of the value, in bytes */
  size_t extended_size; /* of the extended data, in bytes */
  hutch_value *value;   /* NULL: the value is in the buffer */
  uint64_t version;     /* of the entry; before a call with HUTCH_LOOK_KNOWN, of the value
                           that the caller has */
} hutch_found;

/*
 * hutch_look - a value with its extended data, copied if they fit, else by reference
 *
 * If the value and its extended data fit together into capacity, the call copies both: the
 * extended data begin where the value ends, and out->value is NULL. Else the call copies
 * nothing, and out->value is a reference, which the caller releases with
 * hutch_value_release. Unless the answer is HUTCH_OK, out->value is NULL. buffer may be NULL
 * if capacity is 0. In all else the call is hutch_get. It is the fastest way to read small
 * values.
 *
 * With HUTCH_LOOK_AT_ONCE the call looks in memory only. If the disk tier may have the
 * entry, the call returns HUTCH_WOULD_BLOCK and counts neither a hit nor a miss. The caller
 * may then look again without the flag, on a thread that may wait.
 *
 * With HUTCH_LOOK_KNOWN the caller has the value of an earlier look in this cache, and its
 * version in out->version. If the entry still has this version, the call may leave the
 * buffer as it is. In all else it is the same access.
 *
 * With HUTCH_LOOK_OR_SIZES a call that finds a value which does not fit may return
 * HUTCH_BUFFER_TOO_SMALL in place of a reference. It has then given the sizes and the version,
 * out->value is NULL, and the call is no access. The caller looks again with room for both.
 * The view of the disk tier does this with the log store: a large value is copied once, from
 * the log to the caller. Since 0.1.
 */
HUTCH_API hutch_status hutch_look(hutch_cache *cache, const void *key, size_t key_size,
                                  uint32_t flags, void *buffer, size_t capacity,
                                  hutch_found *out);

/*
 * hutch_contains - whether there is an entry
 *
 * The call returns HUTCH_OK or HUTCH_NOT_FOUND, as hutch_get would at this moment. It is
 * not an access: neither statistics nor times change. HUTCH_IO: the disk tier could not be
 * read; this holds for hutch_info and hutch_tag too. Since 0.1.
 */
HUTCH_API hutch_status hutch_contains(hutch_cache *cache, const void *key, size_t key_size);

/*
 * hutch_info - an entry's record without its value
 *
 * The call fills in *out (struct_size set). Like hutch_contains, it is not an access. Since
 * 0.1.
 */
HUTCH_API hutch_status hutch_info(hutch_cache *cache, const void *key, size_t key_size,
                                  hutch_entry_info *out);

/*
 * hutch_tag - read an entry's tag
 *
 * *size (not NULL) receives the size of the tag; 0: the entry has no tag. If capacity is
 * smaller, the call copies nothing and returns HUTCH_BUFFER_TOO_SMALL; a buffer of
 * HUTCH_TAG_MAX bytes always suffices. buffer may be NULL if capacity is 0. Like
 * hutch_info, the call is not an access. HUTCH_NOT_FOUND: no entry. Since 0.1.
 */
HUTCH_API hutch_status hutch_tag(hutch_cache *cache, const void *key, size_t key_size,
                                 void *buffer, size_t capacity, size_t *size);

/*
 * hutch_touch - reset an entry's times
 *
 * The entry counts as written now: the call sets created and accessed, and keeps value, tag
 * and version. time_to_live and time_to_idle: 0 keeps the entry's own duration, and
 * HUTCH_FOREVER means none. An entry that expires has a higher charge: if that is above the
 * memory tier's max_entry, the touch evicts the entry from memory. HUTCH_NOT_FOUND: no entry.
 * HUTCH_IO, HUTCH_NO_SPACE, HUTCH_BUSY: the entry on disk stays as it was. Since 0.1.
 */
HUTCH_API hutch_status hutch_touch(hutch_cache *cache, const void *key, size_t key_size,
                                   int64_t time_to_live, int64_t time_to_idle);

/*
 * hutch_remove - remove an entry
 *
 * HUTCH_OK: the entry existed, and is removed from every tier. HUTCH_NOT_FOUND: it did not
 * exist, or a failure has hidden it before, and it is removed now. HUTCH_IO, HUTCH_NO_SPACE,
 * HUTCH_BUSY, HUTCH_TIER_DOWN: the disk tier still has the entry. This cache does not return
 * it any more, but after a kill of the process it may be back. (By a view of a disk tier that
 * is out of service, the copy in memory stays.) Since 0.1.
 */
HUTCH_API hutch_status hutch_remove(hutch_cache *cache, const void *key, size_t key_size);

/*
 * hutch_clear - remove every entry
 *
 * The call is one small transaction, however many entries there are. The space on disk is
 * freed gradually. A concurrent put comes either before the clear or after it. HUTCH_IO,
 * HUTCH_NO_SPACE, HUTCH_BUSY, HUTCH_TIER_DOWN: the disk tier still has its entries. This
 * cache does not return them any more, but after a kill of the process they may be back.
 * Since 0.1.
 */
HUTCH_API hutch_status hutch_clear(hutch_cache *cache);

/* ------------------------------------------------------------------ values */

/*
 * Values. Each call accepts a value that its cache has removed, a value of a closed cache,
 * and after a fork a value of the parent. A value's data are aligned to 16 bytes, are never
 * NULL, and have no terminator. For a NULL value, a function that returns a pointer returns
 * NULL, and a function that returns a size returns 0.
 */

/* hutch_value_data - the bytes. Valid until the reference is released. Since 0.1. */
HUTCH_API const void *hutch_value_data(const hutch_value *value);
/* hutch_value_size - the number of bytes. Since 0.1. */
HUTCH_API size_t hutch_value_size(const hutch_value *value);
/* hutch_value_key, hutch_value_key_size - the key of the put. Since 0.1. */
HUTCH_API const void *hutch_value_key(const hutch_value *value);
HUTCH_API size_t hutch_value_key_size(const hutch_value *value);
/* hutch_value_extended, _size - the extended data, never NULL for a value. Since 0.1. */
HUTCH_API const void *hutch_value_extended(const hutch_value *value);
HUTCH_API size_t hutch_value_extended_size(const hutch_value *value);
/* hutch_value_tag, _size - the tag, never NULL for a value; size 0: none. Since 0.1. */
HUTCH_API const void *hutch_value_tag(const hutch_value *value);
HUTCH_API size_t hutch_value_tag_size(const hutch_value *value);
/*
 * hutch_value_info - the record as the write made it
 *
 * Like hutch_info, but for this value, whatever has become of its entry: accessed is
 * created, and expires is the entry's own (0: none of its own). Since 0.1.
 */
HUTCH_API hutch_status hutch_value_info(const hutch_value *value, hutch_entry_info *out);
/* hutch_value_retain - add a reference; returns its argument. Since 0.1. */
HUTCH_API hutch_value *hutch_value_retain(hutch_value *value);
/* hutch_value_release - release a reference. NULL is accepted. Since 0.1. */
HUTCH_API void hutch_value_release(hutch_value *value);

/* ------------------------------------------------------------- conditional */

/*
 * Each of these calls is atomic: no other write of the key comes between its check and its
 * write. An expired entry counts as absent. In all else the calls are hutch_put, except for
 * failures where the directory is shared: there the disk tier decides, and HUTCH_IO,
 * HUTCH_NO_SPACE, HUTCH_BUSY and HUTCH_TIER_DOWN mean that no tier has stored the value and
 * that the older entry stays.
 */

/*
 * hutch_add - put if there is no entry
 *
 * HUTCH_EXISTS: there is an entry; result->version is its version. Since 0.1.
 */
HUTCH_API hutch_status hutch_add(hutch_cache *cache, const void *key, size_t key_size,
                                 const void *value, size_t value_size,
                                 const hutch_put_options *options, hutch_put_result *result);

/* hutch_replace - put if there is an entry, else HUTCH_NOT_FOUND. Since 0.1. */
HUTCH_API hutch_status hutch_replace(hutch_cache *cache, const void *key, size_t key_size,
                                     const void *value, size_t value_size,
                                     const hutch_put_options *options, hutch_put_result *result);

/*
 * hutch_compare_and_swap - put if the entry has this version
 *
 * version: from hutch_put_result or hutch_entry_info. HUTCH_CONFLICT: the entry has another
 * version, which is then in result->version. HUTCH_NOT_FOUND: no entry. Since 0.1.
 */
HUTCH_API hutch_status hutch_compare_and_swap(hutch_cache *cache, const void *key, size_t key_size,
                                              uint64_t version, const void *value,
                                              size_t value_size, const hutch_put_options *options,
                                              hutch_put_result *result);

/*
 * hutch_increment - add to a counter
 *
 * A counter is a value of 8 bytes: an int64_t, little-endian. If the counter does not
 * exist, the call makes it from initial, with options (as in hutch_put; NULL: defaults). An
 * existing counter keeps its created, expiry, cost, extended data and tag, and gets a new
 * version. The call is an access. *result (may be NULL) receives the sum: initial + delta,
 * or old value + delta. HUTCH_WRONG_TYPE: the value has another size, or its extended data
 * are not those of options. HUTCH_OVERFLOW: the sum does not fit. In both of these cases
 * nothing changed. HUTCH_PARTIAL: as in hutch_put. Since 0.1.
 */
HUTCH_API hutch_status hutch_increment(hutch_cache *cache, const void *key, size_t key_size,
                                       int64_t delta, int64_t initial,
                                       const hutch_put_options *options, int64_t *result);

/*
 * hutch_pop - get a value and remove the entry
 *
 * Of several concurrent callers, exactly one gets the value. *out is as in hutch_get. If
 * the value cannot be read (HUTCH_IO), the entry stays. If the removal fails, *out is NULL
 * and the call returns what hutch_remove would; where the directory is shared, the entry
 * stays. Since 0.1.
 */
HUTCH_API hutch_status hutch_pop(hutch_cache *cache, const void *key, size_t key_size,
                                 hutch_value **out);

/* -------------------------------------------------------------------- many */

/*
 * Many keys in one call: keys[i] and key_sizes[i] are the i-th key, for i below
 * count (up to HUTCH_MANY_MAX; 0 is allowed). A key may occur several times; its puts and
 * removals are made in order. The call checks every argument before it does anything:
 * HUTCH_INVALID_ARGUMENT means that nothing was done.
 *
 * On HUTCH_OK *out is a batch of results by index, which hutch_batch_release releases.
 * hutch_batch_status of an index is the answer for its key, which does not depend on the
 * other keys. A batch is not one transaction: other threads may write between two of its
 * keys. HUTCH_CLOSED, HUTCH_FORKED, HUTCH_NO_MEMORY: nothing was done, and *out is NULL.
 */
typedef struct hutch_batch hutch_batch; /* results, index by index; counted */

/* The most keys in one call. */
#define HUTCH_MANY_MAX 1048576

/*
 * hutch_get_many - get values
 *
 * The answer per key is that of hutch_get. hutch_batch_value has the value. The keys are not
 * read in their order: of a key that occurs twice while other threads put it, the first
 * answer may be the newer one. Since 0.1.
 */
HUTCH_API hutch_status hutch_get_many(hutch_cache *cache, const void *const *keys,
                                      const size_t *key_sizes, size_t count, hutch_batch **out);

/*
 * hutch_info_many - records without their values
 *
 * The answer per key is that of hutch_info. hutch_batch_info has the record. Since 0.1.
 */
HUTCH_API hutch_status hutch_info_many(hutch_cache *cache, const void *const *keys,
                                       const size_t *key_sizes, size_t count, hutch_batch **out);

/*
 * hutch_put_many - store values
 *
 * The answer per key is that of hutch_put, with the same options (may be NULL) for all
 * keys. hutch_batch_put_result has the result of the put. values[i] may be NULL if
 * value_sizes[i] is 0. In a database many puts share a commit, so one call is several times
 * faster than as many calls of hutch_put; in a log it takes as long. Since 0.1.
 */
HUTCH_API hutch_status hutch_put_many(hutch_cache *cache, const void *const *keys,
                                      const size_t *key_sizes, const void *const *values,
                                      const size_t *value_sizes, size_t count,
                                      const hutch_put_options *options, hutch_batch **out);

/*
 * hutch_remove_many - remove entries
 *
 * The answer per key is that of hutch_remove. In a database many removals share a commit.
 * Since 0.1.
 */
HUTCH_API hutch_status hutch_remove_many(hutch_cache *cache, const void *const *keys,
                                         const size_t *key_sizes, size_t count, hutch_batch **out);

/*
 * hutch_remove_prefix - remove the entries of all keys with a common prefix
 *
 * The call removes from every tier each entry that was put before the call under a key that
 * begins with the prefix or is the prefix. An entry that is put during the call is removed
 * or stays. Each entry is removed as by hutch_remove: the listener gets its events. In a
 * database many removals share a commit. Other calls run between them. *removed (may be NULL)
 * receives the number of entries removed, also if the call fails. prefix_size:
 * 1..HUTCH_KEY_MAX. HUTCH_OK: also if there was no such entry. HUTCH_TIER_DOWN, HUTCH_IO,
 * HUTCH_NO_SPACE, HUTCH_BUSY: entries on disk may be left; those in memory may be gone.
 * Since 0.1.
 */
HUTCH_API hutch_status hutch_remove_prefix(hutch_cache *cache, const void *prefix,
                                           size_t prefix_size, uint64_t *removed);

/*
 * hutch_remove_tagged - remove the entries that were put with a tag
 *
 * An entry has the tag of the put that stored it (hutch_put_options.tag), or none; a touch
 * and an increment keep the tag. The call removes from every tier each entry that was put
 * with this tag before the call, and no kill of the process brings one back. An entry that
 * is put with the tag during the call may stay. An entry that is put during the call with
 * another tag, or without one, stays. A load or a task that began before the call, and then
 * would store with the tag, does not store (HUTCH_SUPERSEDED). The tag of a load is known
 * when the load is answered. A caller that takes part in such a load after the call gets
 * the value, which is not stored. Objects that were put with the tag are removed too. Each
 * entry is removed as by hutch_remove: the listener gets its events. In a database many
 * removals share a commit. Other calls run between them.
 *
 * A database finds the entries by an index. A log, and the memory tier, scan all of their
 * entries: the call takes O(entries) there. *removed (may be NULL) receives the number of
 * entries removed, also if the call fails. HUTCH_OK: also if there was no such entry.
 * HUTCH_TIER_DOWN, HUTCH_IO, HUTCH_NO_SPACE, HUTCH_BUSY: entries may be left, in memory too,
 * and gets still find them. Since 0.1.
 */
HUTCH_API hutch_status hutch_remove_tagged(hutch_cache *cache, const void *tag,
                                           size_t tag_size, uint64_t *removed);

/*
 * hutch_batch_count, hutch_batch_status - the number of results; one result
 *
 * The status of an index out of range, or of NULL, is HUTCH_INVALID_ARGUMENT.
 * hutch_last_error has the words of the last index that failed. Since 0.1.
 */
HUTCH_API size_t hutch_batch_count(const hutch_batch *batch);
HUTCH_API hutch_status hutch_batch_status(const hutch_batch *batch, size_t index);

/*
 * hutch_batch_value - the value of an index
 *
 * NULL if there is none. The batch owns the value: hutch_value_retain keeps it longer.
 * Since 0.1.
 */
HUTCH_API hutch_value *hutch_batch_value(const hutch_batch *batch, size_t index);

/*
 * hutch_batch_info, hutch_batch_put_result - further results of an index
 *
 * The call fills in *out (struct_size set). hutch_batch_info reads results of
 * hutch_info_many, and hutch_batch_put_result those of hutch_put_many. HUTCH_NOT_FOUND: the
 * batch is of another kind, or hutch_info_many has no record of the key (hutch_batch_status
 * says why). Since 0.1.
 */
HUTCH_API hutch_status hutch_batch_info(const hutch_batch *batch, size_t index,
                                        hutch_entry_info *out);
HUTCH_API hutch_status hutch_batch_put_result(const hutch_batch *batch, size_t index,
                                              hutch_put_result *out);

/* hutch_batch_retain, hutch_batch_release - references. NULL is accepted. Since 0.1. */
HUTCH_API hutch_batch *hutch_batch_retain(hutch_batch *batch);
HUTCH_API void hutch_batch_release(hutch_batch *batch);

/* ------------------------------------------------------------------ limits */

/* The statistics of a tier. The counters are those of this process, whatever its openings, and
   start when it opens the cache. Of a disk tier, count and cost are those of all processes. */
typedef struct hutch_tier_stats {
  uint32_t state;       /* HUTCH_STATE_* */
  uint32_t reserved_1;
  uint64_t count;       /* entries held, as hutch_count */
  uint64_t cost;        /* bytes charged, as hutch_cost */
  uint64_t hits;        /* gets that this tier answered; on disk pops count too */
  uint64_t misses;      /* gets that it could not answer; on disk pops count too */
  uint64_t puts;        /* values stored, promotions and, in memory, touches included */
  uint64_t removals;    /* entries that a call removed: hutch_remove and the like, or a put
                           that was for the other tier; but not a clear, or a notification
                           that empties memory */
  uint64_t evictions;   /* entries evicted for a limit */
  uint64_t expirations; /* entries removed because they had expired */
  uint64_t refusals;    /* puts that were too large or found no space */
  uint64_t failures;    /* calls of the system or of SQLite that failed */
  uint64_t damaged;     /* entries found damaged, and removed */
  uint64_t replacements; /* puts that replaced an entry, and touches; memory only */
  uint64_t trims;        /* entries removed by hutch_trim, and by hutch_notify down to
                            low_water; on disk these are evictions */
  uint64_t held_count;   /* values and objects that have left the tier but are still
                            referenced; memory only, no longer charged */
  uint64_t held_bytes;   /* the bytes that these occupy */
  uint64_t waiting;      /* objects without a reference, not yet released */
  uint64_t reserved[15];
} hutch_tier_stats;

/* The state of a tier. */
enum {
  HUTCH_STATE_NONE = 0, /* the cache has no such tier */
  HUTCH_STATE_UP = 1,
  HUTCH_STATE_DOWN = 2  /* out of service: its directory cannot be used */
};

typedef struct hutch_cache_stats {
  size_t struct_size;
  hutch_tier_stats memory;
  hutch_tier_stats disk;
} hutch_cache_stats;

/*
 * hutch_limits - the limits in force
 *
 * The call fills in *out (struct_size set); see hutch_tier_limits. All zero: the cache has
 * no such tier. A view of a tier gives those of both tiers. Since 0.1.
 */
HUTCH_API hutch_status hutch_limits(hutch_cache *cache, hutch_cache_limits *out);

/*
 * hutch_set_limits - change the limits of an open cache
 *
 * When the call returns, each tier has evicted the entries above its new limit. On a tier
 * view the call changes the limits of that tier only. A limit of 0 stays as it is. Limits
 * of a disk tier that the cache does not have are ignored. A longer time to live or to idle
 * counts for each entry that is there: calls find an entry again that the shorter one has
 * ended, unless it has been removed since. HUTCH_INVALID_ARGUMENT: limits is NULL, or a
 * duration is negative. HUTCH_IO, HUTCH_NO_SPACE, HUTCH_BUSY, HUTCH_TIER_DOWN: memory has
 * its new limits, and the disk tier need not have them. Since 0.1.
 */
HUTCH_API hutch_status hutch_set_limits(hutch_cache *cache, const hutch_cache_limits *limits);

/*
 * hutch_count - the number of entries
 *
 * For a cache, the call counts distinct keys, in whatever tier they are; while the disk
 * tier is out of service, those in memory. It may count entries that have expired until
 * maintenance removes them, mostly within a second; in a cache without threads or while it
 * is suspended, hutch_maintain does. With a clock of the host it is exact. It counts an
 * entry twice while a write-back (HUTCH_WRITE_ON_EVICTION) is writing it. Where processes
 * share the directory, an entry in memory only that another process has replaced or evicted
 * by a write also counts, until memory needs its space; so do entries of another codec,
 * which reads do not see. The call may miss an entry of memory that the disk tier evicts,
 * or has evicted in another call that has not returned or in maintenance. Since 0.1.
 */
HUTCH_API hutch_status hutch_count(hutch_cache *cache, uint64_t *count);

/*
 * hutch_cost - what the entries are charged, in bytes
 *
 * For a cache, the result is the sum of its tiers. Since 0.1.
 */
HUTCH_API hutch_status hutch_cost(hutch_cache *cache, uint64_t *cost);

/*
 * hutch_value_bytes - the sum of the sizes of the values
 *
 * The call counts each key once, without its overhead, its extended data and the space that
 * the disk tier takes up for it, which hutch_cost has. A host's objects have no bytes. The
 * call walks all entries, as hutch_each does. An empty cache has 0. Since 0.1.
 */
HUTCH_API hutch_status hutch_value_bytes(hutch_cache *cache, uint64_t *bytes);

/*
 * hutch_stats - counters of the tiers
 *
 * The call fills in *out (struct_size set). No other call waits for it. A view of a tier has
 * no other tier: that one is HUTCH_STATE_NONE. Since 0.1.
 */
HUTCH_API hutch_status hutch_stats(hutch_cache *cache, hutch_cache_stats *out);

/* -------------------------------------------------------------------- trim */

/* The entries that a trim removes. A trim to a cost or a count ends when the tier holds amount
   or less. */
enum {
  HUTCH_TRIM_EXPIRED = 1,        /* expired entries; counts are exact afterwards */
  HUTCH_TRIM_TO_COST = 2,        /* to amount bytes charged, in the order of the tier's
                                    policy */
  HUTCH_TRIM_TO_COUNT = 3,       /* to amount entries, in the same order */
  HUTCH_TRIM_LARGEST_FIRST = 4,  /* to amount bytes charged, highest charge first */
  HUTCH_TRIM_LEAST_RECENT = 5,   /* to amount bytes charged, oldest last access first */
  HUTCH_TRIM_LEAST_FREQUENT = 6, /* to amount bytes charged, fewest accesses first */
  HUTCH_TRIM_WRITTEN_BEFORE = 7, /* entries written or touched before the Unix time `time` */
  HUTCH_TRIM_OLDER_THAN = 8,     /* entries written or touched longer than `time` ago */
  HUTCH_TRIM_IDLE_FOR = 9,       /* entries last accessed longer than `time` ago */
  HUTCH_TRIM_LARGER_THAN = 10,   /* entries with values of more than amount bytes */
  HUTCH_TRIM_ACCESSED_BEFORE = 11 /* entries last accessed before the Unix time `time` */
};

/* How to trim. */
typedef struct hutch_trim_spec {
  size_t struct_size;
  uint32_t kind;     /* HUTCH_TRIM_* */
  uint32_t reserved; /* zero */
  uint64_t amount;   /* bytes or entries; 0 means zero of them, not no limit */
  int64_t time;      /* Unix time, or a duration */
  /* NULL, or a function that the call makes now and then, on the caller's thread with no
     lock held, with how many entries it has removed, and how many that will be once the tiers
     that it has come to are trimmed (0: not known). The function returns 0 to continue, or
     another number to stop the trim. */
  hutch_progress progress;
  void *context;
} hutch_trim_spec;

/*
 * hutch_trim - remove entries of a kind, or down to a size
 *
 * On a cache, the call trims each tier by itself, memory first. An entry that it removes
 * from one tier may remain in the other. *removed (may be NULL) receives the sum over the
 * tiers, also if the call fails: a key that both tiers had counts twice. Readers and
 * writers continue meanwhile. The trim removes nothing once its target is reached. It may
 * or may not remove an entry that is put meanwhile. Last accesses are those of
 * hutch_entry_info. Access counts are approximate and start when the entry came into its
 * tier. The log store records removals: where its log is full, it may evict other entries
 * for the records, which *removed does not count.
 *
 * HUTCH_OK: also if progress stopped the trim. HUTCH_INVALID_ARGUMENT: spec is NULL, or a
 * duration is negative. HUTCH_UNSUPPORTED: no such kind. HUTCH_IO, HUTCH_NO_SPACE,
 * HUTCH_TIER_DOWN: the disk tier could not be trimmed; the memory tier was trimmed. Since
 * 0.1.
 */
HUTCH_API hutch_status hutch_trim(hutch_cache *cache, const hutch_trim_spec *spec,
                                  uint64_t *removed);

/* ----------------------------------------------------------------- iterate */

/*
 * A walk calls a visitor with an entry's key and record, which are valid during the call.
 * The visitor returns 0 to continue, or another number to stop the walk.
 */
typedef int32_t (*hutch_visitor)(void *context, const void *key, size_t key_size,
                                 const hutch_entry_info *info);

/*
 * hutch_each - call a function for every entry
 *
 * The visitor runs on the caller's thread with no lock held, so it may change the cache.
 * The walk visits an entry that is present from beginning to end exactly once, and any
 * other entry at most once, in no particular order. Of a disk tier that is out of service it
 * visits nothing, as if the tier were empty; so do cursors, and hutch_value_bytes counts
 * nothing there. HUTCH_OK: also if the visitor stopped the walk. HUTCH_IO, HUTCH_NO_MEMORY:
 * the walk did not come to its end. Since 0.1.
 */
HUTCH_API hutch_status hutch_each(hutch_cache *cache, hutch_visitor visitor, void *context);

/*
 * hutch_cursor_create - begin a walk
 *
 * *out: a new reference, which hutch_cursor_release releases. A cursor holds no lock
 * between its steps, and visits the entries that hutch_each visits. Only one thread at a
 * time may use a cursor. Since 0.1.
 */
HUTCH_API hutch_status hutch_cursor_create(hutch_cache *cache, hutch_cursor **out);

/* The order of a cursor. */
enum {
  HUTCH_ORDER_INSERTION = 1,    /* by the time of the last write or touch */
  HUTCH_ORDER_ACCESS = 2,       /* by the last access, as hutch_entry_info has it */
  HUTCH_ORDER_DESCENDING = 256  /* added to one of these: the newest first */
};

/*
 * hutch_cursor_create_ordered - begin a walk by age
 *
 * Like hutch_cursor_create, but the walk visits the oldest entries first, or the newest;
 * entries of the same time come in the order of their writes. An entry is visited exactly
 * once if it is present from beginning to end and is meanwhile neither written nor touched
 * (nor, with HUTCH_ORDER_ACCESS, read). Any other entry is visited at most once: an entry
 * that is written or read before the walk reaches it may be missed.
 *
 * With HUTCH_ORDER_INSERTION on a view of the disk tier of a database, a step costs the same
 * as without an order. The order is then that in which the database has stored the entries:
 * an entry that hutch_increment, hutch_copy or a write on eviction has stored, which keep
 * its `created`, comes with the entries of that time. Any other ordered walk scans all
 * entries at its first step, and again after every 32,768 entries, or 3.5 MB of keys, that it
 * has visited. It needs memory for these keys, and up to 22 bytes for each entry that it has
 * visited. HUTCH_UNSUPPORTED: no such order. Since 0.1.
 */
HUTCH_API hutch_status hutch_cursor_create_ordered(hutch_cache *cache, uint32_t order,
                                                   hutch_cursor **out);

/*
 * hutch_cursor_next - step to the next entry
 *
 * *key and *key_size (not NULL) receive its key, which is valid until the next step or the
 * cursor's release. HUTCH_NOT_FOUND: there are no more entries. HUTCH_IO, HUTCH_NO_MEMORY: the
 * step has failed, and the next call tries it again. Since 0.1.
 */
HUTCH_API hutch_status hutch_cursor_next(hutch_cursor *cursor, const void **key, size_t *key_size);

/*
 * hutch_cursor_value, hutch_cursor_info - the entry at which the cursor stands
 *
 * The calls read the entry as it is now, like hutch_get and hutch_info with its key.
 * HUTCH_NOT_FOUND: the entry has been removed since, or the cursor has not made its first
 * step, or there were no more entries at its last one. Neither call is an access, so a walk
 * neither promotes entries nor extends their lives. Since 0.1.
 */
HUTCH_API hutch_status hutch_cursor_value(hutch_cursor *cursor, hutch_value **out);
HUTCH_API hutch_status hutch_cursor_info(hutch_cursor *cursor, hutch_entry_info *out);

/* hutch_cursor_release - release the reference. NULL is accepted. Since 0.1. */
HUTCH_API void hutch_cursor_release(hutch_cursor *cursor);

/* ----------------------------------------------------------------- loaders */

/*
 * A load makes a missing value. Concurrent callers of one missing key take part in one load,
 * so a stampede makes one value. The leader, one of the callers, makes the value itself or by
 * its loader.
 * The other callers wait, each for its own timeout. All of them get the same value, or the
 * same failure. A load stores its value as hutch_put does, with these rules:
 *
 *   - A put of the key during the load is newer: its value stays, and the callers of the
 *     load get it. After a remove or a clear during the load, the callers get the loaded
 *     value, and it is not stored. A call that begins after such a write takes no part in
 *     that load: it begins another load.
 *   - A leader loses the lead if it abandons the load, if it does not answer within its
 *     time, or if its loader returns without an answer. The lead passes to a caller that
 *     waits, or to the next call for the key. A value that the old leader makes after that
 *     is not stored.
 *   - A failure reaches all callers that wait. The cache then forgets it, unless the
 *     leader's options ask to remember it.
 *   - A call returns HUTCH_DEADLOCK if it would wait for a load that waits for the caller's
 *     own load, directly or over several keys of the cache. Within a loader, loads by the
 *     same thread count as the loader's own, also after it has answered. For other loads see
 *     `parent` below.
 *
 * A cache in one process makes one load of a key at a time; each of its tier views does so
 * for itself. Timeouts are real time, whatever clock the options of the cache name. Ages
 * follow that clock.
 */
typedef struct hutch_loading hutch_loading; /* one caller's part in a load; counted */

/* How to load. All zero: the defaults. */
typedef struct hutch_load_options {
  size_t struct_size;
  uint32_t flags;    /* HUTCH_LOAD_* or 0 */
  uint32_t reserved; /* zero */
  /* How long this caller waits for another caller's value. Also how long this caller, once
     it leads, keeps the lead while other callers wait. 0: 60 s; HUTCH_FOREVER: no limit */
  int64_t timeout;
  /* An entry that was written this long ago, or longer, is to be refreshed: one caller
     leads a load of it, and the other callers get the old value at once. The entry still
     expires by its own time to live. 0: never refresh */
  int64_t soft_time_to_live;
  /* For this long after a failure of this caller's load, calls for the key get the same
     failure without running a loader; but a call that finds an entry, if one that is to be
     refreshed, gets its value. A write or a removal of the key and a clear end that at
     once. Remembered failures take at most 1 MiB; the oldest is dropped first. 0: not
     remembered */
  int64_t negative_time_to_live;
  /* The load that needs this one, for hosts that do not load within a loader: the library
     finds cycles by it. A load of another cache counts for nothing. NULL: the load of the
     loader that makes the call, if any */
  hutch_loading *parent;
} hutch_load_options;

enum {
  /* If the load that refreshes an entry fails, its caller gets the old value and no
     failure. A load without an answer (HUTCH_CANCELLED) is no failure. */
  HUTCH_LOAD_STALE_IF_ERROR = 1
};

/*
 * The host's function that makes a missing value. hutch_load calls it on its own stack with
 * no lock held. The loader may call any function, also hutch_load of other keys, except
 * hutch_close and hutch_flush of the same cache (HUTCH_DEADLOCK). It answers `loading`,
 * which is valid during the call, with hutch_loading_fulfil or hutch_loading_fail, and
 * returns HUTCH_OK. If it returns another status without an answer, that counts as
 * hutch_loading_fail with that code.
 */
typedef hutch_status (*hutch_loader)(void *context, const void *key, size_t key_size,
                                     hutch_loading *loading);

/*
 * hutch_load - get a value, or load it
 *
 * If the value is present, the call returns it like hutch_get, at the same cost. Else the
 * loader makes it, or the call waits for another caller's loader. options: NULL means the
 * defaults. *out is as in hutch_get. HUTCH_OK: also if the value was made but not stored;
 * the loader learns that from hutch_loading_fulfil.
 *
 * HUTCH_LOAD_FAILED: the loader, this caller's or another's, failed; hutch_last_error has
 * its code and words. HUTCH_CANCELLED: the loader abandoned the load or did not answer.
 * HUTCH_TIMED_OUT: another caller's loader took too long, or this caller's own failed after
 * its lead had passed on. HUTCH_DEADLOCK: see above.
 * HUTCH_CLOSED: also for a caller that waits while the cache is closed. Since 0.1.
 */
HUTCH_API hutch_status hutch_load(hutch_cache *cache, const void *key, size_t key_size,
                                  hutch_loader loader, void *context,
                                  const hutch_load_options *options, hutch_value **out);

/*
 * hutch_load_begin - get a value, or take part in its load
 *
 * For hosts that make the value elsewhere: in a coroutine, on another thread, or by a
 * request that is answered later. value and loading must not be NULL.
 *
 * HUTCH_OK: *value is the value, as in hutch_get. If *loading is then not NULL, the value
 * is to be refreshed, and this caller leads. HUTCH_NOT_FOUND: there is no value, and this
 * caller leads: it makes the value and answers *loading. HUTCH_WOULD_BLOCK: another caller
 * leads, and this one waits with *loading. *loading is a new reference, which
 * hutch_loading_release releases. HUTCH_LOAD_FAILED: the cache remembers a failure.
 * HUTCH_DEADLOCK: see above. Since 0.1.
 */
HUTCH_API hutch_status hutch_load_begin(hutch_cache *cache, const void *key, size_t key_size,
                                        const hutch_load_options *options, hutch_value **value,
                                        hutch_loading **loading);

/*
 * hutch_loading_wait - wait for the value
 *
 * The call waits for at most timeout (0: not at all; HUTCH_FOREVER: no limit), and no
 * longer than the options of hutch_load_begin allow. HUTCH_OK: *out is the value, also for
 * a caller that has answered. HUTCH_NOT_FOUND: this caller leads, as after
 * hutch_load_begin. HUTCH_WOULD_BLOCK: timeout is 0, and there is no value yet.
 * HUTCH_TIMED_OUT: the time has passed; the caller may wait again. HUTCH_LOAD_FAILED,
 * HUTCH_CLOSED: as in hutch_load. HUTCH_CANCELLED: hutch_loading_abandon gave up this part.
 * Since 0.1.
 */
HUTCH_API hutch_status hutch_loading_wait(hutch_loading *loading, int64_t timeout,
                                       hutch_value **out);

/*
 * hutch_loading_fulfil - answer a load with the value
 *
 * The call stores the value with these options, like hutch_put, and gives it to all callers
 * that wait. They also get a value that could not be stored: HUTCH_PARTIAL,
 * HUTCH_TOO_LARGE, HUTCH_NO_SPACE, HUTCH_IO, HUTCH_TIER_DOWN. HUTCH_SUPERSEDED: the value
 * is not stored, since the key was written during the load, or the lead has passed on.
 * HUTCH_CLOSED: the cache was closed during the load, and no caller gets the value.
 * HUTCH_NO_MEMORY: nothing happened. HUTCH_INVALID_ARGUMENT: this caller has answered or
 * abandoned the load, or never led it. Since 0.1.
 */
HUTCH_API hutch_status hutch_loading_fulfil(hutch_loading *loading, const void *value,
                                         size_t value_size, const hutch_put_options *options);

/*
 * hutch_loading_fail - answer a load with a failure
 *
 * Every caller that waits gets HUTCH_LOAD_FAILED; its hutch_last_error has code as
 * system_error, and its words end with words (ends with NUL; may be NULL; copied, up to 200
 * bytes).
 * HUTCH_SUPERSEDED: a put of the key was made during the load, and the callers get its
 * value; or the lead has passed on. HUTCH_INVALID_ARGUMENT: as in hutch_loading_fulfil.
 * Since 0.1.
 */
HUTCH_API hutch_status hutch_loading_fail(hutch_loading *loading, int32_t code, const char *words);

/*
 * hutch_loading_abandon - take no further part in a load
 *
 * If this caller leads, the lead passes on. If a call waits with this loading on another
 * thread, it returns HUTCH_CANCELLED. HUTCH_OK: also if there was nothing to abandon. Since
 * 0.1.
 */
HUTCH_API hutch_status hutch_loading_abandon(hutch_loading *loading);

/*
 * hutch_loading_wanted - whether a caller still waits for a load's value
 *
 * For a loader that takes long, or for code that answers in its place. HUTCH_OK: yes.
 * HUTCH_CANCELLED: the load has been abandoned or answered. Also HUTCH_CANCELLED: the load
 * is one of hutch_load_async, its task has been asked to end, and no other caller waits for
 * the value. The library accepts an answer until the load has been abandoned or answered.
 * Since 0.1.
 */
HUTCH_API hutch_status hutch_loading_wanted(hutch_loading *loading);

/*
 * hutch_loading_retain, hutch_loading_release - references
 *
 * NULL is accepted. The release of the last reference without an answer abandons the load,
 * like hutch_loading_abandon. Since 0.1.
 */
HUTCH_API hutch_loading *hutch_loading_retain(hutch_loading *loading);
HUTCH_API void hutch_loading_release(hutch_loading *loading);

/* ------------------------------------------------------------------ events */

/* The kinds of events. */
enum {
  HUTCH_EVENT_WILL_ADD = 1,      /* a put begins */
  HUTCH_EVENT_DID_ADD = 2,       /* an entry has been stored in these tiers */
  HUTCH_EVENT_WILL_REMOVE = 4,   /* the removal of an entry begins */
  HUTCH_EVENT_DID_REMOVE = 8,    /* an entry has been removed from these tiers */
  HUTCH_EVENT_WILL_CLEAR = 16,   /* hutch_clear begins */
  HUTCH_EVENT_DID_CLEAR = 32,    /* hutch_clear is done */
  HUTCH_EVENT_TIER_DOWN = 64,    /* a tier is out of service; status says why */
  HUTCH_EVENT_TIER_UP = 128,     /* a tier is in service again */
  HUTCH_EVENT_MEMORY_WARNING = 256,     /* hutch_notify was called; comes first */
  HUTCH_EVENT_ENTERED_BACKGROUND = 512, /* likewise */
  HUTCH_EVENT_ALL = 1023
};

/* Why an entry is removed. */
enum {
  HUTCH_CAUSE_NONE = 0,     /* not removed: another kind of event */
  HUTCH_CAUSE_REPLACED = 1, /* by a put of its key */
  HUTCH_CAUSE_REMOVED = 2,  /* by hutch_remove or hutch_pop */
  HUTCH_CAUSE_EVICTED = 3,  /* for a limit, for pressure, or by any trim but of expired
                               entries */
  HUTCH_CAUSE_EXPIRED = 4,  /* its time to live or to idle has ended */
  HUTCH_CAUSE_CLEARED = 5,  /* by a clear, or as the memory tier was emptied */
  HUTCH_CAUSE_DAMAGED = 6,  /* its row or file was found damaged */
  HUTCH_CAUSE_WRITTEN_BACK = 7 /* of DID_ADD: the disk tier gets an entry that was in
                                  memory only (HUTCH_WRITE_ON_EVICTION) */
};

/* One event; valid during the listener's call. */
typedef struct hutch_event {
  size_t struct_size;
  uint32_t kind;       /* one of HUTCH_EVENT_* */
  uint32_t cause;      /* HUTCH_CAUSE_* */
  uint32_t tiers;      /* the HUTCH_TIER_* concerned, or'd */
  hutch_status status; /* of TIER_DOWN: why; else HUTCH_OK */
  uint64_t version;    /* of the entry added or removed; WILL_ADD: 0 if the put draws
                          its version later, as hutch_put does */
  const void *key;     /* NULL for events that are not about an entry */
  size_t key_size;
  hutch_value *value;  /* of the entry added or removed; hutch_value_retain keeps it.
                          NULL if it is not in memory: an entry that the disk tier alone
                          removes by eviction, expiry or damage */
} hutch_event;

/* A listener. It may call any function. A function that waits (see Callbacks) returns
   HUTCH_DEADLOCK, and so does a call, of whatever cache, that would wait for another caller's
   load. */
typedef void (*hutch_listener)(void *context, const hutch_event *event);

/*
 * hutch_set_listener - get an event for each change of the cache
 *
 * The cache calls listener with context for every event whose kind is in kinds (an or of
 * HUTCH_EVENT_*). listener replaces the listener that the cache had; NULL: the cache has
 * none any more. A cache has one listener, whatever its views and openings. The older
 * listener still gets the events of changes that were made before. Its release function is
 * called when its last call is over, which may be after this call has returned. release may
 * be NULL; it is called on failure too. A close makes no event. The close of the cache's last
 * opening releases the listener; until then it is called, also if the opening that set it has
 * been closed.
 *
 * The thread whose call made the change calls the listener, before that call returns; or
 * the maintenance thread does. The thread holds no lock of the library. If another thread
 * is delivering events of the same stripe of keys, that thread delivers this call's events
 * too, and this call waits for it, unless a listener made the call. The event of an entry
 * that this call evicts may then come after this call has returned.
 *
 * The events of a key come in the order of its versions, each exactly once. A put makes
 * WILL_ADD before it is done. Then it makes WILL_REMOVE and DID_REMOVE for an entry
 * that it replaces, and DID_ADD if a tier stored the value. A removal makes WILL_REMOVE
 * before it is done and DID_REMOVE after it; a removal of an absent key makes no event.
 * If several calls write a key at the same time, other events may come after the first
 * event of a put or of a removal, and DID_REMOVE of a removal may tell of a newer entry
 * than WILL_REMOVE, come without it, or not come. For evictions, expiry and
 * replacement, both events come after the entry has left. Each tier makes events of its
 * own evictions and expiries: an entry may leave memory, and later the disk. A get that
 * brings a value into memory makes no event. If the disk tier gets an entry that was in
 * memory only (HUTCH_WRITE_ON_EVICTION), that is DID_ADD with HUTCH_CAUSE_WRITTEN_BACK;
 * it comes before memory's eviction. A touch makes no event, except through a view of
 * the disk tier: what memory has of the entry goes, as by an eviction. A clear makes
 * WILL_CLEAR and DID_CLEAR, and between them DID_REMOVE for each entry that memory had.
 * If the tiers evict an entry while a call removes it, either the call finds the entry
 * and DID_REMOVE says so, or the call answers HUTCH_NOT_FOUND. Where processes share,
 * what memory has of an entry that is no more the newest is told, without its value,
 * when it goes.
 *
 * HUTCH_UNSUPPORTED: kinds has a kind that is not defined. Since 0.1.
 */
HUTCH_API hutch_status hutch_set_listener(hutch_cache *cache, uint32_t kinds,
                                          hutch_listener listener, void *context,
                                          hutch_release release);

/* The severity of a line of the log. */
enum {
  HUTCH_LOG_ERROR = 1,   /* something is lost, or stays wrong */
  HUTCH_LOG_WARNING = 2, /* something failed; the cache continues without it */
  HUTCH_LOG_INFO = 3,    /* a change worth recording */
  HUTCH_LOG_DEBUG = 4
};

/* One line of the log; valid during the call. */
typedef struct hutch_log_record {
  size_t struct_size;
  uint32_t level;         /* HUTCH_LOG_* */
  uint32_t tiers;         /* the HUTCH_TIER_* concerned, or'd */
  hutch_status status;    /* of the failure; HUTCH_OK: no failure */
  int32_t system_error;   /* errno, or 0 */
  int32_t sqlite_error;   /* SQLite's extended result code, or 0 */
  uint32_t reserved;      /* zero */
  uint64_t left_out;      /* lines before this one that were dropped, too many a second */
  const char *directory;  /* as it was opened; NULL: a cache in memory */
  char words[232];        /* what happened; UTF-8, ends with NUL */
} hutch_log_record;

/* A logger. It may call any function; a function that waits returns HUTCH_DEADLOCK, as in a
   listener. The lines that its own calls cause come after it has returned. */
typedef void (*hutch_logger)(void *context, const hutch_log_record *record);

/*
 * hutch_set_logger, hutch_set_default_logger - log what goes wrong
 *
 * The library calls logger with context for every line of this level or a more severe one.
 * logger replaces the logger that was set; NULL: none is set any more, and level has no
 * meaning. A cache without a logger of its own uses the process's default logger. At first
 * neither is set, and nothing is logged. The log tells of: a disk tier that goes out of
 * service or comes back, with the reason; damage that was found, and what became of it; a
 * directory that was not closed; values that the disk tier did not store; loaders that
 * failed; limits that an opening has changed; closes that were not clean. A cache logs at
 * most 32 lines a second.
 *
 * Any thread may call the logger, also several at once, with no lock held. A line comes
 * before the call that met its cause returns, hutch_open and hutch_close included, or from
 * the maintenance thread. The release function of an older logger is called when its last
 * call is over; that of a cache's own logger with the close of the cache's last opening.
 * release may be NULL; it is called on failure too. HUTCH_UNSUPPORTED: no such level. Since
 * 0.1.
 */
HUTCH_API hutch_status hutch_set_logger(hutch_cache *cache, uint32_t level, hutch_logger logger,
                                        void *context, hutch_release release);
HUTCH_API hutch_status hutch_set_default_logger(uint32_t level, hutch_logger logger, void *context,
                                                hutch_release release);

/* ------------------------------------------------------------------- large */

/*
 * Values that a host passes as files or in pieces, and values that a host reads as files.
 * The disk tier keeps a value in a file of its own if its storage is HUTCH_STORAGE_FILE, or
 * if it is HUTCH_STORAGE_MIXED or HUTCH_STORAGE_LOG and the value is larger than
 * inline_threshold. Such a file has the raw bytes and a random name. The library writes it
 * once and never changes it.
 */

/* How hutch_put_file uses the given file. */
enum {
  HUTCH_FILE_COPY = 1, /* the file stays, and is the caller's */
  HUTCH_FILE_MOVE = 2, /* the file is unlinked once the entry is committed */
  HUTCH_FILE_LINK = 3  /* the file stays; the entry shares its bytes */
};

/*
 * hutch_put_file - store a file's bytes
 *
 * Like hutch_put, with the bytes of the regular file at path (ends with NUL; the call
 * follows symbolic links) as the value. The call reads the whole value into memory only if
 * the memory tier accepts it or the value does not get a file. On the cache's file system,
 * MOVE and LINK copy nothing: the entry's file is a hard link to the given file. Where a
 * hard link is impossible, for example on another file system, they copy.
 *
 * A change of the bytes of a linked file damages the entry, and a read of the entry detects
 * that. MOVE unlinks path last, and only if the disk tier has stored the value (or the memory
 * tier, if the put is for that tier alone): at every moment there is the file or the entry. If
 * the unlink fails, the call returns HUTCH_IO, and result says what is stored.
 *
 * HUTCH_IO: also if the file cannot be opened or read. HUTCH_INVALID_ARGUMENT: also if it
 * is not a regular file, or if the path is empty. In all of these cases nothing changed.
 * Since 0.1.
 */
HUTCH_API hutch_status hutch_put_file(hutch_cache *cache, const void *key, size_t key_size,
                                      const char *path, uint32_t use,
                                      const hutch_put_options *options,
                                      hutch_put_result *result);

/*
 * hutch_writer_begin - begin a put whose value comes in pieces
 *
 * *out: a new reference, which hutch_writer_release releases. If the value gets a file, and
 * no codec makes it, the writer writes it there piece by piece and never has the whole value
 * in memory; the value does not enter the memory tier (HUTCH_OUTCOME_REMOVED) before it is
 * read, also where its file is too large for the disk tier (HUTCH_TOO_LARGE). The writer
 * gathers any other value in memory, and commits it like hutch_put. Until the commit, no
 * call sees the value, and another put of the key is independent. options are as in
 * hutch_put; durations begin at the commit.
 *
 * expected_size: the size of the value, if the caller knows it; 0: not known. The value may get
 * another size. HUTCH_TOO_LARGE: no tier would accept that size. Only one thread at a time may
 * use a writer. Since 0.1.
 */
HUTCH_API hutch_status hutch_writer_begin(hutch_cache *cache, const void *key, size_t key_size,
                                          uint64_t expected_size,
                                          const hutch_put_options *options, hutch_writer **out);

/*
 * hutch_writer_append - the next bytes of the value
 *
 * After a failure (HUTCH_TOO_LARGE, HUTCH_NO_SPACE, HUTCH_IO, HUTCH_TIER_DOWN,
 * HUTCH_NO_MEMORY) every later append and commit returns that failure; the existing entry
 * stays. An abort ends the writer. Since 0.1.
 */
HUTCH_API hutch_status hutch_writer_append(hutch_writer *writer, const void *data, size_t size);

/*
 * hutch_writer_commit - store the appended bytes
 *
 * The value replaces the existing entry, as in hutch_put. The commit draws its version. If the
 * last bytes cannot be written to the value's file, the existing entry stays, as after a failed
 * append. The writer ends, unless an append has failed before: every later call but
 * hutch_writer_release returns HUTCH_INVALID_ARGUMENT (in a closed cache also HUTCH_CLOSED).
 * Since 0.1.
 */
HUTCH_API hutch_status hutch_writer_commit(hutch_writer *writer, hutch_put_result *result);

/*
 * hutch_writer_abort - end without storing anything
 *
 * The call discards the appended bytes. HUTCH_INVALID_ARGUMENT: the writer has ended
 * already. Since 0.1.
 */
HUTCH_API hutch_status hutch_writer_abort(hutch_writer *writer);

/*
 * hutch_writer_release - release the reference
 *
 * A writer that has not ended is aborted. NULL is accepted. Since 0.1.
 */
HUTCH_API void hutch_writer_release(hutch_writer *writer);

/*
 * hutch_path - the path of the value's file
 *
 * The path is absolute. It is a hint: as soon as the entry is replaced, removed or
 * evicted, the file may be deleted, unless files are held (hutch_hold_files).
 * hutch_open_fd has no such race. The file must not be changed. The call is not an access,
 * and does not check the bytes.
 *
 * *size (not NULL) receives the length of the path without its NUL. If capacity is not
 * greater than that, the call copies nothing and returns HUTCH_BUFFER_TOO_SMALL. buffer may
 * be NULL if capacity is 0. HUTCH_WRONG_TYPE: the value has no file of its own, or the file
 * has the codec's output in place of the value; hutch_open_fd reads the value in each case.
 * HUTCH_NOT_FOUND: no entry on disk, or the tier is out of service. HUTCH_UNSUPPORTED: a cache
 * in memory, or a view of the memory tier. Since 0.1.
 */
HUTCH_API hutch_status hutch_path(hutch_cache *cache, const void *key, size_t key_size,
                                        char *buffer, size_t capacity, size_t *size);

/*
 * hutch_open_fd - a file descriptor that reads a value
 *
 * *out: a file descriptor, close-on-exec, at the value's beginning, which the caller
 * closes; -1 unless the answer is HUTCH_OK. The descriptor reads the same bytes as long as
 * it is open, whatever becomes of the entry and the cache. For a value with a file, it is a
 * read-only descriptor of that file. For any other value, it refers to a copy in memory
 * (memfd_create), sealed against writing. sendfile, mmap and fstat work with both. The call
 * is an access, like hutch_get, of the disk tier alone for a value with a file; it does not
 * check the bytes of a file. HUTCH_IO: also if the process has no descriptor left. Since 0.1.
 */
HUTCH_API hutch_status hutch_open_fd(hutch_cache *cache, const void *key, size_t key_size,
                                      int32_t *out);

/*
 * hutch_hold_files, hutch_unhold_files - keep the files of values in place
 *
 * While files are held, the library neither moves nor deletes any file of a value: paths
 * from hutch_path stay valid. Replacement, removal and eviction of entries still take
 * effect at once. The files of those entries are deleted, and their space is freed, when
 * the last hold has ended. Holds are counted. Each ends with an unhold through the same
 * handle (a view is another one; hutch_cache_retain makes none), with the handle's last
 * reference, or with the close of the cache. A kill of the process meanwhile loses nothing.
 * A cache without files of values accepts holds too. HUTCH_INVALID_ARGUMENT: this handle
 * holds no files. Since 0.1.
 */
HUTCH_API hutch_status hutch_hold_files(hutch_cache *cache);
HUTCH_API hutch_status hutch_unhold_files(hutch_cache *cache);

/* ----------------------------------------------------------------- objects */

/*
 * A cache also keeps pointers to objects of the host: parsed documents, compiled patterns,
 * open connections. Without options.object_codec, objects are in the memory tier only, never
 * on disk, and have keys of their own: an object and a value may have the same key, and
 * neither sees the other.
 * Objects count in hutch_count and hutch_cost. They obey the memory tier's policy, limits,
 * times to live and to idle, and trims, and hutch_clear and hutch_remove_tagged remove them.
 * No cursor visits them. They make no events: the release function tells that an object has left.
 *
 * Each object has a release function (or NULL: none). The library calls it exactly once,
 * when the entry is removed and no reference to the object is left. A thread of the library
 * makes the call, or with HUTCH_OPEN_DRAIN_RELEASES hutch_drain_releases does. No lock of
 * the library is held. The release function may call the library, except the functions that
 * wait (see Callbacks). While a cache is being closed, and after that, hutch_close or the
 * call that releases the last reference calls it. In the child of a fork, it is not called
 * for objects of the parent.
 *
 * OBJECTS IN BOTH TIERS
 *   With options.object_codec an object is the value of its key. hutch_put_object encodes
 *   the object, and puts the bytes as hutch_put does: by the write policy, under the
 *   limits and times of both tiers, through options.codec, with all events, with extended
 *   data, a tag and a suffix. In memory the entry has the object beside its bytes, and
 *   both leave memory together. The charge is that of the value, or options->cost.
 *   hutch_get_object finds the value as hutch_get does. If the entry in memory has the
 *   object, the answer is that object. Else the codec decodes the value, and the entry in
 *   memory has the new object from then on, if the memory tier takes the entry; else each
 *   call decodes. Of several threads that ask for it at the same time, one decodes, and
 *   all get the same object. A value that hutch_put or another process has put, and one
 *   that hutch_open finds in the directory, is decoded likewise. hutch_get, hutch_remove,
 *   cursors and all other calls work on the value. A write of the key replaces the object
 *   with the value; a touch keeps it. A view of the disk tier decodes at each call, and
 *   keeps no object. A failure of encode or decode is the answer of the call:
 *   HUTCH_NO_MEMORY, HUTCH_CORRUPT, HUTCH_UNSUPPORTED and HUTCH_WRONG_TYPE as the function
 *   returned them, else HUTCH_IO. The entry stays as it was. HUTCH_DEADLOCK: decode asked
 *   for the object that it is making.
 */

/*
 * hutch_put_object - store an object
 *
 * The object replaces the object under the key. options are as in hutch_put, without
 * extended data. The charge is options->cost, or else what the entry takes beside the
 * object: as much as one with a value of 40 bytes. If the call fails, for whatever reason,
 * it releases the object before it returns, on the caller's thread. With
 * options.object_codec the call answers as hutch_put; a put that fails after the encoding,
 * or that has stored the object on disk only, releases it as an object that has left.
 * Without one, write_policy and suffix have no effect. HUTCH_TOO_LARGE: the cost is above the
 * tier's max_entry; an older object is removed. HUTCH_UNSUPPORTED: a view of the disk
 * tier. HUTCH_INVALID_ARGUMENT, HUTCH_NO_MEMORY, HUTCH_IO (no thread could be made):
 * nothing changed. Since 0.1.
 */
HUTCH_API hutch_status hutch_put_object(hutch_cache *cache, const void *key, size_t key_size,
                                        void *object, hutch_release release,
                                        const hutch_put_options *options);

/*
 * hutch_get_object - a counted reference to an object
 *
 * *out: a reference, which hutch_object_release releases. Until then the object is not
 * released, whatever becomes of its entry or its cache. *out is NULL if the answer is
 * HUTCH_NOT_FOUND or a failure. The call is an access, like hutch_get. With
 * options.object_codec it may decode a value. HUTCH_UNSUPPORTED: a view of the disk tier
 * without an object codec; this holds for hutch_remove_object too. Since 0.1.
 */
HUTCH_API hutch_status hutch_get_object(hutch_cache *cache, const void *key, size_t key_size,
                                        hutch_object **out);

/* hutch_remove_object - remove an object's entry, or HUTCH_NOT_FOUND. With
   options.object_codec it is hutch_remove. Since 0.1. */
HUTCH_API hutch_status hutch_remove_object(hutch_cache *cache, const void *key,
                                           size_t key_size);

/*
 * hutch_drain_releases - release objects to which no reference is left
 *
 * The call releases at most max objects (0: all that wait), on the caller's thread.
 * *drained (may be NULL) receives their number. Since 0.1.
 */
HUTCH_API hutch_status hutch_drain_releases(hutch_cache *cache, uint64_t max,
                                            uint64_t *drained);

/* hutch_object_pointer - the pointer that was put or decoded. NULL for NULL. Since 0.1. */
HUTCH_API void *hutch_object_pointer(const hutch_object *object);
/* hutch_object_retain - add a reference; returns its argument. Since 0.1. */
HUTCH_API hutch_object *hutch_object_retain(hutch_object *object);
/* hutch_object_release - release a reference. NULL is accepted. Since 0.1. */
HUTCH_API void hutch_object_release(hutch_object *object);

/* ---------------------------------------------------------------- pressure */

/* Notifications of a host to a cache. */
enum {
  HUTCH_NOTIFY_MEMORY_WARNING = 1,    /* the system is short of memory */
  HUTCH_NOTIFY_ENTERED_BACKGROUND = 2 /* the program is in the background */
};

/* How a notification shrinks the memory tier; an option of hutch_open for each. */
enum {
  HUTCH_SHRINK_DEFAULT = 0,   /* empty */
  HUTCH_SHRINK_EMPTY = 1,     /* every entry leaves memory */
  HUTCH_SHRINK_LOW_WATER = 2, /* the policy evicts entries, down to options.low_water
                                 percent of the cost limit, or of what it holds if there is
                                 none */
  HUTCH_SHRINK_EXPIRED = 3    /* only expired entries leave */
};

/*
 * hutch_notify - tell a cache of memory pressure
 *
 * First the listener gets its event. Then the memory tier shrinks as
 * options.on_memory_warning and options.on_background say; expired entries leave in any
 * case. Entries on disk stay there. Entries that are in memory only are lost, except those
 * of HUTCH_WRITE_ON_EVICTION, which are written to disk. On a view of the disk tier, the
 * call only makes the event. HUTCH_UNSUPPORTED: no such notification. Since 0.1.
 */
HUTCH_API hutch_status hutch_notify(hutch_cache *cache, uint32_t notification);

/* ------------------------------------------------------------------- check */

enum {
  /* Reads no values and omits SQLite's own check: finds the damage that shows in the
     rows, the names of the files and the sums. */
  HUTCH_CHECK_QUICK = 1
};

/* The damage that hutch_check has found and repaired. All numbers but the first two are zero if
   nothing was wrong. */
typedef struct hutch_check_report {
  size_t struct_size;
  uint64_t entries;  /* entries checked and found whole */
  uint64_t bytes;    /* the bytes of their values that were read */
  uint64_t damaged;  /* entries removed because a value, a field or a file was damaged */
  uint64_t orphans;  /* files removed that belonged to no entry */
  uint64_t counters; /* 1 if the count, the cost, or the charge of an entry was wrong; it
                        has been corrected */
  uint64_t manifest; /* errors that SQLite found. The check has rebuilt an index; where
                        that was not enough, it has renamed the database and the
                        disk tier is empty. Of a log: faults of its index. Where
                        keys had no place in it, they have one again, with what the
                        log has of them; other faults are gone when the next opening
                        that is alone has made the index anew, of the log */
  uint64_t reserved[4];
} hutch_check_report;

/*
 * hutch_check - check and repair everything on disk
 *
 * For a directory that another program may have written to, or that was on a failing disk;
 * a cache in ordinary use never needs it. flags: HUTCH_CHECK_* or 0. The call fills in
 * *report (may be NULL) if it returns HUTCH_OK, also when it found damage. It takes as long
 * as reading everything. Readers and writers continue meanwhile, but the database's log may
 * grow beyond its bound. HUTCH_UNSUPPORTED: there is no disk tier here. HUTCH_IO,
 * HUTCH_NO_SPACE, HUTCH_BUSY, HUTCH_TIER_DOWN: the check did not complete. A page of the
 * database or the file of a value that cannot be read is HUTCH_IO and no damage, so nothing
 * is lost for it; behind such a file the check goes on. Since 0.1.
 */
HUTCH_API hutch_status hutch_check(hutch_cache *cache, uint32_t flags, hutch_check_report *report);

/* -------------------------------------------------------------------- copy */

/* What a copy has done. */
typedef struct hutch_copy_report {
  size_t struct_size;
  uint64_t copied;   /* entries stored in the target */
  uint64_t bytes;    /* the bytes of their values */
  uint64_t existing; /* entries left out because the target had one of the key */
  uint64_t refused;  /* entries left out because they are too large for the target */
  uint64_t reserved[4];
} hutch_copy_report;

/*
 * hutch_copy - copy all live entries of one cache into another
 *
 * This moves a directory to another kind of storage or to other limits: target may be of
 * any kind, with any codec, also in memory. An entry keeps its times, cost, extended data,
 * tag, and the suffix of its file. (In a target without a disk tier the copy is an access.)
 * The copies get versions of target, in no order. They are stored on disk if target has a
 * disk tier, and else in memory; with a view as source or target, in that tier. Nothing is
 * removed from source.
 *
 * Both caches may be used meanwhile, by other processes too. An entry that is written to
 * source during the call may be left out. A key that target has already keeps its entry, so
 * the call can be repeated: a second one copies what is missing. Where the limits of target
 * are too small for all entries, it evicts as ever.
 *
 * The call fills in *report (may be NULL) also on a failure, after which the entries copied
 * so far are in target. It needs memory for the largest value. HUTCH_INVALID_ARGUMENT:
 * source and target are the same cache, or views of it. HUTCH_NO_SPACE, HUTCH_TIER_DOWN,
 * HUTCH_BUSY, HUTCH_IO: of either; of a source whose disk tier is out of service, what
 * memory has is copied before the call fails. Since 0.1.
 */
HUTCH_API hutch_status hutch_copy(hutch_cache *source, hutch_cache *target,
                                  hutch_copy_report *report);

/* ------------------------------------------------------------- maintenance */

/*
 * hutch_suspend, hutch_resume - pause tasks and maintenance
 *
 * A suspended cache starts no task and does no maintenance of its own. It serves calls and
 * enforces its limits. Each suspend needs a resume of its own, by whatever opening of the
 * cache, also if the one that suspended is closed; one resume more is
 * HUTCH_INVALID_ARGUMENT. A close does not wait for a resume: the tasks that the closed
 * opening has submitted run nevertheless. Of other openings' tasks, only those run that
 * come before them in the order of a key. If the cache's tasks run on options.queue, the
 * calls pause and continue the maintenance alone, and hutch_queue_suspend pauses the tasks
 * of all caches of the queue. Since 0.1.
 */
HUTCH_API hutch_status hutch_suspend(hutch_cache *cache);
HUTCH_API hutch_status hutch_resume(hutch_cache *cache);

/*
 * hutch_maintain - do the maintenance that is due, on the calling thread
 *
 * The call works in slices until no work is left, or until budget nanoseconds have passed
 * after at least one slice (0: no limit). It removes expired entries, deletes removed
 * files, writes access times, and in a cache without workers runs the tasks, which no other
 * thread runs. One call in a tenth of a second moves 2 MiB of a large memory tier into a
 * huge page. HUTCH_DEADLOCK: a callback of the cache made the call. Since 0.1.
 */
HUTCH_API hutch_status hutch_maintain(hutch_cache *cache, int64_t budget);

/* ------------------------------------------------------------------- notes */

/*
 * SEVERAL PROCESSES, ONE DIRECTORY
 *   Several processes may have a directory open. If one of them opens it with
 *   HUTCH_SHARING_EXCLUSIVE, or with the write policy HUTCH_WRITE_ON_EVICTION, it is the
 *   only one, and a second process gets HUTCH_BUSY. Two openings within one process give
 *   two handles on one cache.
 *
 *   HUTCH_SHARING_SHARED. Once a put, a removal, a touch or a clear has returned in one
 *   process, no get in another process returns anything older, from either tier. Counts,
 *   limits and versions cover all processes. Conditions (hutch_add, hutch_replace,
 *   hutch_compare_and_swap, hutch_increment, hutch_pop, and whether hutch_remove found an
 *   entry) are decided among all processes. A killed process leaves nothing behind for
 *   which another process would wait.
 *   - The limits of the disk tier are the directory's, as they are without sharing.
 *     Limits that hutch_open or hutch_set_limits sets apply to every process from its
 *     next write on, and to its reads within a second. Of what is above lowered limits a
 *     write evicts a few hundred entries, so as not to keep others waiting. hutch_set_limits,
 *     the opening of a log and maintenance evict the rest.
 *   - Each process has its own memory tier. An entry in memory only (HUTCH_PARTIAL, a put
 *     through the memory view) is visible to its process only. It may be evicted, without
 *     an event, whenever another process writes, or this process touches an entry or writes
 *     under a condition, since keys share counters. Its process decides a condition on such
 *     an entry; if another process puts a value at the same time, that value stays.
 *   - An entry that the disk tier has evicted may still be in the memory of other processes, and
 *     their gets find it. A write or a hutch_remove of its key ends it in every process, and so
 *     does hutch_clear. hutch_remove_tagged, hutch_remove_prefix and hutch_trim do not find it in
 *     another process.
 *   - A put is visible in its process from its submission, and in others from its commit.
 *     The promise that no process finds an older value holds from the put's return on.
 *   - A listener gets the events of its own process's calls. A load is single within a
 *     process; if another process puts a value during a load, the loaded value replaces it.
 *   - For a time to idle, accesses in other processes count once they have been written to
 *     the directory: those that the disk tier has answered about a minute later or by
 *     hutch_flush, and those that memory has answered when the entry leaves memory or the
 *     process closes the directory. Until then the entry may have ended for the others.
 *   - If the file system fails a put (HUTCH_PARTIAL), this process does not return the
 *     older value any more; other processes still do. If it fails a write under a condition,
 *     the older value stays in all of them.
 *   - hutch_hold_files holds the files that its own process would remove.
 *   - A process that is alone may keep a read transaction of the database between reads.
 *     Its maintenance ends the transaction within about a second when another process
 *     comes, also while functions of the host occupy all its workers. In a cache that is
 *     suspended, or was opened with HUTCH_OPEN_NO_THREADS, only hutch_maintain does that.
 *     Until then the database's log grows, and puts of the other process may answer
 *     HUTCH_OUTCOME_NO_SPACE (see THE DIRECTORY).
 *   - If a process is stopped (SIGSTOP) in the midst of a transaction on a database, a write
 *     of another process waits for it up to 60 seconds, and the writes after that one 20
 *     milliseconds. Then a put is HUTCH_PARTIAL or HUTCH_BUSY, other writes and openings are
 *     HUTCH_BUSY, and hutch_close is HUTCH_IO, until the stopped process continues or dies.
 *     Reads do not wait. THE LOG STORE has the times of a log.
 *   - While it is open, the directory takes 260 KiB more, outside the limit.
 *
 * FORK
 *   After a fork, parent and child both continue with every cache and view that was open;
 *   values stay valid in both. On disk they are two processes with one directory, and
 *   neither gets anything older than the other has put. The directory stays locked for
 *   further processes until both have closed it or ended. A cache in memory becomes two
 *   separate caches. Tasks, groups, queues, ports, cursors, writers, loadings and holds
 *   belong to the parent alone. In the child they return HUTCH_FORKED, and the child may
 *   make new ones. The child can get objects, but only the parent releases them. The
 *   release functions of a listener, a clock and a codec are called once in each process
 *   that closes the cache. From the fork on, both processes write to disk at once the
 *   entries of HUTCH_WRITE_ON_EVICTION.
 *
 *   A fork waits at most a second for calls that use the disk. It does not wait for calls
 *   that are within a callback. If a call takes longer (a full check of a large directory,
 *   for example), or a directory is being opened or closed, the child's disk tier is out
 *   of service and returns HUTCH_FORKED, and its memory tier starts empty. A fork from
 *   within a callback of the library (a listener, loader, task, visitor, codec) does not
 *   wait: all of the child's caches return HUTCH_FORKED, and so does the opening of their
 *   directories. The parent is unharmed in every case. A handler that pthread_atfork runs
 *   before a fork must not call the library. The library does not know other users of
 *   SQLite within the process: if one of them is active on another thread at the fork,
 *   SQLite's own locks stay locked in the child for ever. A program that is started by exec has
 *   none of the library's descriptors.
 *
 * THE DIRECTORY
 *   A directory that hutch_open makes has mode 0700. Its files belong to the library. Keys,
 *   and values without a codec, are not encrypted. The library refuses a directory on a
 *   network file system (HUTCH_UNSUPPORTED; see HUTCH_OPEN_NETWORK_DIRECTORY). A process with
 *   a limit of the size of files (RLIMIT_FSIZE) ignores SIGXFSZ, which else ends it where a
 *   file would be larger; the write then fails.
 *   HUTCH_STORAGE_LOG: an index ("hutch-index") and a log ("hutch-log"), as the next section
 *   says; in place of a database it has a mark that tells older libraries not to make one.
 *   The other kinds: a SQLite database ("manifest.sqlite"). While the directory is open, no
 *   code of this process may open and close the database file by itself: closing any
 *   descriptor of the file drops SQLite's locks (a rule of POSIX). The process must not have
 *   a second copy of SQLite that opens the file either. Another program may read the
 *   database. During one long read transaction of such a program the database's log grows.
 *   When the log is as large as the disk tier's limit of cost (1 GiB without a limit), a put
 *   waits up to a quarter of a second for the transaction's end, and puts answer
 *   HUTCH_OUTCOME_NO_SPACE until it has ended.
 *
 * THE LOG STORE
 *   A directory of the kind HUTCH_STORAGE_LOG, which is the default of a new directory, has
 *   no database. The store appends entries to a log, and an index gives the place of each.
 *   Every process that has the directory open maps both, so a get copies a value straight
 *   from the log, and a put ends with one store to the index. Puts and gets cost a fraction
 *   of what they cost in a database, above all with several processes. A directory is of
 *   this kind, or of one of the other three, for its life. hutch_copy moves entries to a
 *   directory of another kind.
 *   The differences from the other kinds:
 *   - Space. An empty directory takes about 300 KB of the disk. The first put takes a
 *     whole segment (below; 1 MiB under the default limit, 8 MiB without a limit on a file
 *     system of 256 MiB or more), and the first entry that is kept another one. Where the
 *     file system has no space for one, a put is HUTCH_OUTCOME_NO_SPACE. A directory with a
 *     small limit of cost has small segments. The addresses of a process that the files of a
 *     directory take are those that they may grow to: 72 GiB under the default limit, but at
 *     most a sixteenth of RLIMIT_AS, or 256 MiB, for each file.
 *   - Limits. The log consists of segments of one size, a thirty-second of the limit of cost
 *     when the directory was made, or of the file system's size if that is smaller, rounded
 *     down to a power of two, at least 16 KiB and a page of the system's memory, and at most
 *     16 MiB. The limit of cost holds in whole segments, with a least size of two. A limit
 *     below that size holds for the bytes of the entries, which hutch_cost gives, and the log
 *     keeps two segments. The limit of count holds exactly. For min_free maintenance gives up a
 *     segment, or as much in files, at a time. The log keeps two segments, in which puts go on.
 *     A value that is larger than inline_threshold, or than a quarter of a segment, has a file
 *     of its own. Files and segments share the limit of cost; a file counts whole blocks of
 *     4 KiB. A value whose file would not fit beside two segments is stored in the log if it is
 *     not larger than a segment. Key, extended data and tag of an entry must fit a segment: under
 *     a limit of cost below about 4 MB the longest are HUTCH_OUTCOME_TOO_LARGE.
 *   - By its own policy, eviction and trims to a cost or a count take entries in the order of
 *     their writes, but for those that are kept. An entry is kept, in a part of the log of
 *     its own, if it was read twice after it was written, if memory has it and was asked for
 *     it, or if its key had been evicted shortly before. A kept entry stays as long as it is
 *     read from time to time. Under LRU and LFU an entry is kept among the others if it was
 *     read since. What is kept is written again: up to 0.3 bytes for each byte that is put,
 *     half of the log once in advance.
 *     HUTCH_TRIM_LEAST_FREQUENT tells apart entries that were not read, read once, and read
 *     more often since they were appended.
 *   - A segment of which at most a quarter is still needed is used again before the log grows,
 *     and so is the oldest one where the log has four times what its entries need. What is
 *     needed of it is written again.
 *   - Without a limit of cost the log's size is at most about twice what its entries need, and
 *     eight segments. Where it cannot grow, puts evict entries as they do under a limit: on a
 *     full file system, at 32,768 segments, or behind the addresses that a process with a low
 *     RLIMIT_AS has for it. No log grows beyond what each process that has it open can see.
 *   - A log has addresses for a petabyte of writes, and each loss of power takes those of 512
 *     GiB. Once half of them are used, the next opening that is alone makes the directory
 *     anew, empty. Puts that come to the last address before that fail with HUTCH_CORRUPT.
 *   - The space of a segment that has gone, for a lower limit, say, is free on the disk once no
 *     read of any process can be in it: at once in a process that is alone and has no other
 *     call under way, else after the next maintenance of each process, mostly within two
 *     seconds. A process that is stopped (SIGSTOP), or that was opened with
 *     HUTCH_OPEN_NO_THREADS and does not call hutch_maintain, puts that off. The log uses the
 *     space again in any case.
 *   - Last accesses are those of all processes, at most a second old, or a millisecond where
 *     an entry has a time to idle.
 *   - The disk tier keeps no order. A cursor by HUTCH_ORDER_INSERTION on a view of the disk
 *     tier scans, like every other ordered walk.
 *   - Durability. Every 30 seconds, and when the last process closes the directory,
 *     maintenance brings the log and a checkpoint to the disk. After a loss of power the
 *     entries are those after one of the writes since the last checkpoint: later writes are
 *     undone, all of them. Under HUTCH_DURABILITY_PROCESS entries whose place in the log was
 *     used again after the checkpoint are lost, too, but no entry comes back that had been
 *     replaced, removed or cleared before that write; after an eviction, hutch_remove_tagged
 *     and hutch_remove_prefix withdraw the checkpoint for this, until the next one. The first
 *     opening afterwards reads what was written since the checkpoint; maintenance then finds
 *     the entries again, about a million a second. An entry that it has not come to is a miss.
 *     A directory without a checkpoint, or that was copied while it was open, is empty.
 *     Under HUTCH_DURABILITY_POWER a write or maintenance makes a checkpoint every 5 seconds
 *     and every 64 MB, so a loss of power undoes only the writes since, and takes no other
 *     entry; an entry that was evicted since may come back, unless its key was put or removed
 *     after that. Before a place in the log is used again there is a checkpoint that does not
 *     need it. hutch_flush makes all earlier writes safe. Under HUTCH_DURABILITY_SYNC a write,
 *     also a removal, a touch or an increment, returns when the disk has what it wrote; writes
 *     that wait at the same time share one wait for the disk. A clear, a trim to a size and
 *     hutch_set_limits wait for a checkpoint, and so do, with either durability and after an
 *     eviction, hutch_remove_tagged and hutch_remove_prefix. If the disk refuses bytes of the
 *     log or of the index to any process, then no process makes a checkpoint, their writes
 *     under sync fail, and the last hutch_close returns HUTCH_IO. The next opening of the
 *     directory, when no process has it open, writes all of the log and the index once more,
 *     and the promise holds again if the disk takes that. An opening with either durability
 *     finds all entries again before it returns, and writes all of the file system's pages to
 *     the disk once.
 *   - Checksums are always verified, of the bytes that the codec made where there is one.
 *   - At most 250 processes have the directory open at a time. If a process is stopped
 *     (SIGSTOP) in the midst of a write, a write of another process waits for it up to 5
 *     seconds, and the writes after that one 20 milliseconds. Then a put is HUTCH_PARTIAL
 *     or HUTCH_BUSY, and other writes and openings are HUTCH_BUSY, until the stopped
 *     process continues or dies. Reads do not wait. An opening waits up to 60 seconds for
 *     another process that opens or closes the directory, then it is HUTCH_BUSY; and so does
 *     a call that waits for a checkpoint, for another process that writes one.
 *   - A directory that was removed or replaced is noticed by the first write after 0.1
 *     seconds, by maintenance, by hutch_flush and by hutch_close. Until then writes go to
 *     the removed files, and are lost. If hutch-checkpoint alone is removed, the next
 *     hutch_open makes it anew; until then no checkpoint is made, and under
 *     HUTCH_DURABILITY_POWER and SYNC what needs one fails with HUTCH_TIER_DOWN.
 *   - If another program truncates the files of an open directory, an access to them ends
 *     the process (SIGBUS).
 *
 * CRASHES
 *   A kill of the process loses no completed put, except entries of
 *   HUTCH_WRITE_ON_EVICTION that were not yet written. A loss of power may lose recent
 *   entries, or all, unless options.durability says otherwise. The entries that remain are
 *   whole.
 *
 * WRITING ON EVICTION
 *   A put with HUTCH_WRITE_ON_EVICTION stores its entry in memory and defers the write to
 *   disk (HUTCH_OUTCOME_DEFERRED). The write-back writes the entry with its whole record
 *   when the memory tier evicts it for a limit or a trim, or for pressure (hutch_notify),
 *   when the memory tier is emptied, or when the entry is removed through the memory view.
 *   hutch_flush also writes it, hutch_close does within its deadline, and hutch_set_limits
 *   does before it sets a limit of the memory tier. An entry that has expired by the memory
 *   tier's ages, or was replaced, removed or cleared, is not written.
 *
 *   The put removes the older value of the key from the disk tier before it returns. A kill
 *   of the process therefore loses an entry that was not yet written, and brings no older
 *   value back. A get finds the entry at every moment of the write-back. Write-backs are
 *   done in groups of about thirty entries at most, by the calls that evict them and by
 *   maintenance, so a kill can also lose entries that have just left memory. An entry that
 *   the disk tier refuses at that time (it is full, or out of service) is lost, as if
 *   evicted. A value that is too large for the memory tier, a value with a suffix, and the
 *   values of hutch_put_file and of writers are stored on disk at once. In a cache in
 *   memory the policy is HUTCH_WRITE_MEMORY.
 *
 *   Other processes would not see an entry that is in this process's memory only. A cache
 *   opened with this policy therefore has its directory to itself, and the policy together
 *   with HUTCH_SHARING_SHARED is HUTCH_INVALID_ARGUMENT. In a cache that shares its
 *   directory, a put with this policy stores in both tiers at once (HUTCH_WRITE_THROUGH).
 */

#ifdef __cplusplus
}
#endif
#endif /* HUTCH_H */
