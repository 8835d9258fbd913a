/*
 * hutch_dl.h - Hutch at run time, through dlopen, for programs that do not link it
 *
 * SPDX-License-Identifier: MIT
 *
 * A table of the library's functions under their names without the prefix:
 *
 *   hutch_dl hutch;
 *   const char *why = hutch_dl_open(&hutch, NULL);
 *   if (why) return without_a_cache(why);
 *   hutch.open("cache", NULL, &cache);
 *
 * Code written for the headers works through a table unchanged: define HUTCH_DL_NAMES before
 * the include of this header, and have a table named hutch_dl_table in scope.
 *
 * A program keeps this header beside hutch.h and hutch_tasks.h of the same version. It needs no
 * further library, since dlopen is in libc. The library is never unloaded, so the table has no
 * release function.
 */
#ifndef HUTCH_DL_H
#define HUTCH_DL_H

#include <dlfcn.h>
#include <string.h>

#include "hutch_tasks.h"

/* Every function of hutch.h and hutch_tasks.h, in their order, without the prefix. */
#define HUTCH_DL_FUNCTIONS(X)                                                                  \
  X(version) X(abi_version) X(status_name) X(status_text) X(error_words) X(last_error)         \
  X(buffer_resize) X(open) X(close) X(destroy) X(cache_retain) X(cache_release) X(tier)        \
  X(directory) X(get_options) X(set_options)                                                   \
  X(flush)                                                                                     \
  X(put) X(get) X(get_into) X(look) X(contains) X(info) X(tag) X(touch) X(remove) X(clear)     \
  X(value_data) X(value_size) X(value_key) X(value_key_size) X(value_extended)                 \
  X(value_extended_size) X(value_tag) X(value_tag_size) X(value_info) X(value_retain)          \
  X(value_release)                                                                             \
  X(add) X(replace) X(compare_and_swap) X(increment) X(pop)                                    \
  X(get_many) X(info_many) X(put_many) X(remove_many) X(remove_prefix) X(remove_tagged)        \
  X(batch_count) X(batch_status) X(batch_value) X(batch_info) X(batch_put_result) X(batch_retain)             \
  X(batch_release)                                                                             \
  X(limits) X(set_limits) X(count) X(cost) X(value_bytes) X(stats)                             \
  X(trim)                                                                                      \
  X(each) X(cursor_create) X(cursor_create_ordered) X(cursor_next) X(cursor_value)             \
  X(cursor_info) X(cursor_release)                                                             \
  X(load) X(load_begin) X(loading_wait) X(loading_fulfil) X(loading_fail) X(loading_abandon)   \
  X(loading_wanted) X(loading_retain) X(loading_release)                                       \
  X(set_listener) X(set_logger) X(set_default_logger)                                          \
  X(put_file) X(writer_begin) X(writer_append) X(writer_commit) X(writer_abort)                \
  X(writer_release) X(path) X(open_fd) X(hold_files) X(unhold_files)                           \
  X(put_object) X(get_object) X(remove_object) X(drain_releases) X(object_pointer)             \
  X(object_retain) X(object_release)                                                           \
  X(notify)                                                                                    \
  X(check) X(copy)                                                                             \
  X(suspend) X(resume) X(maintain)                                                             \
  X(task_cancel) X(task_wait) X(task_set_priority) X(task_status) X(task_retain)               \
  X(task_release)                                                                              \
  X(queue_create) X(shared_queue) X(cache_queue) X(queue_submit) X(queue_set_width) X(queue_wait_all)          \
  X(queue_cancel_all) X(queue_suspend) X(queue_resume) X(queue_run) X(queue_retain)            \
  X(queue_release)                                                                             \
  X(group_create) X(group_start) X(group_cancel) X(group_wait) X(group_retain)                 \
  X(group_release)                                                                             \
  X(port_create) X(port_fd) X(port_drain) X(port_close) X(port_retain) X(port_release)         \
  X(get_async) X(put_async) X(remove_async) X(contains_async) X(clear_async) X(flush_async)    \
  X(trim_async) X(load_async) X(submit) X(wait_all)

#define HUTCH_DL_MEMBER(name) __typeof__(&hutch_##name) name;
typedef struct hutch_dl {
  HUTCH_DL_FUNCTIONS(HUTCH_DL_MEMBER)
} hutch_dl;
#undef HUTCH_DL_MEMBER

/* POSIX allows a function's address in a void pointer; ISO C does not, hence the copy. */
static inline int hutch_dl_find(void *library, const char *name, void *function) {
  void *address = dlsym(library, name);
  memcpy(function, &address, sizeof address);
  return address != NULL;
}

/*
 * Loads the library (path; NULL: libhutch.so.0 where the system looks for libraries) and
 * fills in the table. Returns NULL, or the reason of the failure: words of the loader, valid
 * until the thread's next call of the loader, or static words.
 */
static inline const char *hutch_dl_open(hutch_dl *table, const char *path) {
  void *library = dlopen(path ? path : "libhutch.so.0", RTLD_NOW | RTLD_LOCAL);
  memset(table, 0, sizeof *table);
  if (!library) return dlerror();
#define HUTCH_DL_FIND(name) \
  if (!hutch_dl_find(library, "hutch_" #name, &table->name)) return "no hutch_" #name;
  HUTCH_DL_FUNCTIONS(HUTCH_DL_FIND)
#undef HUTCH_DL_FIND
  return table->abi_version() < HUTCH_ABI_VERSION ? "older than hutch.h" : NULL;
}

#ifdef HUTCH_DL_NAMES
#define hutch_version hutch_dl_table.version
#define hutch_abi_version hutch_dl_table.abi_version
#define hutch_status_name hutch_dl_table.status_name
#define hutch_status_text hutch_dl_table.status_text
#define hutch_error_words hutch_dl_table.error_words
#define hutch_last_error hutch_dl_table.last_error
#define hutch_buffer_resize hutch_dl_table.buffer_resize
#define hutch_open hutch_dl_table.open
#define hutch_close hutch_dl_table.close
#define hutch_destroy hutch_dl_table.destroy
#define hutch_cache_retain hutch_dl_table.cache_retain
#define hutch_cache_release hutch_dl_table.cache_release
#define hutch_tier hutch_dl_table.tier
#define hutch_directory hutch_dl_table.directory
#define hutch_get_options hutch_dl_table.get_options
#define hutch_set_options hutch_dl_table.set_options
#define hutch_flush hutch_dl_table.flush
#define hutch_put hutch_dl_table.put
#define hutch_get hutch_dl_table.get
#define hutch_get_into hutch_dl_table.get_into
#define hutch_look hutch_dl_table.look
#define hutch_contains hutch_dl_table.contains
#define hutch_info hutch_dl_table.info
#define hutch_tag hutch_dl_table.tag
#define hutch_touch hutch_dl_table.touch
#define hutch_remove hutch_dl_table.remove
#define hutch_clear hutch_dl_table.clear
#define hutch_value_data hutch_dl_table.value_data
#define hutch_value_size hutch_dl_table.value_size
#define hutch_value_key hutch_dl_table.value_key
#define hutch_value_key_size hutch_dl_table.value_key_size
#define hutch_value_extended hutch_dl_table.value_extended
#define hutch_value_extended_size hutch_dl_table.value_extended_size
#define hutch_value_tag hutch_dl_table.value_tag
#define hutch_value_tag_size hutch_dl_table.value_tag_size
#define hutch_value_info hutch_dl_table.value_info
#define hutch_value_retain hutch_dl_table.value_retain
#define hutch_value_release hutch_dl_table.value_release
#define hutch_add hutch_dl_table.add
#define hutch_replace hutch_dl_table.replace
#define hutch_compare_and_swap hutch_dl_table.compare_and_swap
#define hutch_increment hutch_dl_table.increment
#define hutch_pop hutch_dl_table.pop
#define hutch_get_many hutch_dl_table.get_many
#define hutch_info_many hutch_dl_table.info_many
#define hutch_put_many hutch_dl_table.put_many
#define hutch_remove_many hutch_dl_table.remove_many
#define hutch_remove_prefix hutch_dl_table.remove_prefix
#define hutch_remove_tagged hutch_dl_table.remove_tagged
#define hutch_batch_count hutch_dl_table.batch_count
#define hutch_batch_status hutch_dl_table.batch_status
#define hutch_batch_value hutch_dl_table.batch_value
#define hutch_batch_info hutch_dl_table.batch_info
#define hutch_batch_put_result hutch_dl_table.batch_put_result
#define hutch_batch_retain hutch_dl_table.batch_retain
#define hutch_batch_release hutch_dl_table.batch_release
#define hutch_limits hutch_dl_table.limits
#define hutch_set_limits hutch_dl_table.set_limits
#define hutch_count hutch_dl_table.count
#define hutch_cost hutch_dl_table.cost
#define hutch_value_bytes hutch_dl_table.value_bytes
#define hutch_stats hutch_dl_table.stats
#define hutch_trim hutch_dl_table.trim
#define hutch_each hutch_dl_table.each
#define hutch_cursor_create hutch_dl_table.cursor_create
#define hutch_cursor_create_ordered hutch_dl_table.cursor_create_ordered
#define hutch_cursor_next hutch_dl_table.cursor_next
#define hutch_cursor_value hutch_dl_table.cursor_value
#define hutch_cursor_info hutch_dl_table.cursor_info
#define hutch_cursor_release hutch_dl_table.cursor_release
#define hutch_load hutch_dl_table.load
#define hutch_load_begin hutch_dl_table.load_begin
#define hutch_loading_wait hutch_dl_table.loading_wait
#define hutch_loading_fulfil hutch_dl_table.loading_fulfil
#define hutch_loading_fail hutch_dl_table.loading_fail
#define hutch_loading_abandon hutch_dl_table.loading_abandon
#define hutch_loading_wanted hutch_dl_table.loading_wanted
#define hutch_loading_retain hutch_dl_table.loading_retain
#define hutch_loading_release hutch_dl_table.loading_release
#define hutch_set_listener hutch_dl_table.set_listener
#define hutch_set_logger hutch_dl_table.set_logger
#define hutch_set_default_logger hutch_dl_table.set_default_logger
#define hutch_put_file hutch_dl_table.put_file
#define hutch_writer_begin hutch_dl_table.writer_begin
#define hutch_writer_append hutch_dl_table.writer_append
#define hutch_writer_commit hutch_dl_table.writer_commit
#define hutch_writer_abort hutch_dl_table.writer_abort
#define hutch_writer_release hutch_dl_table.writer_release
#define hutch_path hutch_dl_table.path
#define hutch_open_fd hutch_dl_table.open_fd
#define hutch_hold_files hutch_dl_table.hold_files
#define hutch_unhold_files hutch_dl_table.unhold_files
#define hutch_put_object hutch_dl_table.put_object
#define hutch_get_object hutch_dl_table.get_object
#define hutch_remove_object hutch_dl_table.remove_object
#define hutch_drain_releases hutch_dl_table.drain_releases
#define hutch_object_pointer hutch_dl_table.object_pointer
#define hutch_object_retain hutch_dl_table.object_retain
#define hutch_object_release hutch_dl_table.object_release
#define hutch_notify hutch_dl_table.notify
#define hutch_check hutch_dl_table.check
#define hutch_copy hutch_dl_table.copy
#define hutch_suspend hutch_dl_table.suspend
#define hutch_resume hutch_dl_table.resume
#define hutch_maintain hutch_dl_table.maintain
#define hutch_task_cancel hutch_dl_table.task_cancel
#define hutch_task_wait hutch_dl_table.task_wait
#define hutch_task_set_priority hutch_dl_table.task_set_priority
#define hutch_task_status hutch_dl_table.task_status
#define hutch_task_retain hutch_dl_table.task_retain
#define hutch_task_release hutch_dl_table.task_release
#define hutch_queue_create hutch_dl_table.queue_create
#define hutch_shared_queue hutch_dl_table.shared_queue
#define hutch_cache_queue hutch_dl_table.cache_queue
#define hutch_queue_submit hutch_dl_table.queue_submit
#define hutch_queue_set_width hutch_dl_table.queue_set_width
#define hutch_queue_wait_all hutch_dl_table.queue_wait_all
#define hutch_queue_cancel_all hutch_dl_table.queue_cancel_all
#define hutch_queue_suspend hutch_dl_table.queue_suspend
#define hutch_queue_resume hutch_dl_table.queue_resume
#define hutch_queue_run hutch_dl_table.queue_run
#define hutch_queue_retain hutch_dl_table.queue_retain
#define hutch_queue_release hutch_dl_table.queue_release
#define hutch_group_create hutch_dl_table.group_create
#define hutch_group_start hutch_dl_table.group_start
#define hutch_group_cancel hutch_dl_table.group_cancel
#define hutch_group_wait hutch_dl_table.group_wait
#define hutch_group_retain hutch_dl_table.group_retain
#define hutch_group_release hutch_dl_table.group_release
#define hutch_port_create hutch_dl_table.port_create
#define hutch_port_fd hutch_dl_table.port_fd
#define hutch_port_drain hutch_dl_table.port_drain
#define hutch_port_close hutch_dl_table.port_close
#define hutch_port_retain hutch_dl_table.port_retain
#define hutch_port_release hutch_dl_table.port_release
#define hutch_get_async hutch_dl_table.get_async
#define hutch_put_async hutch_dl_table.put_async
#define hutch_remove_async hutch_dl_table.remove_async
#define hutch_contains_async hutch_dl_table.contains_async
#define hutch_clear_async hutch_dl_table.clear_async
#define hutch_flush_async hutch_dl_table.flush_async
#define hutch_trim_async hutch_dl_table.trim_async
#define hutch_load_async hutch_dl_table.load_async
#define hutch_submit hutch_dl_table.submit
#define hutch_wait_all hutch_dl_table.wait_all
#endif

#endif /* HUTCH_DL_H */
