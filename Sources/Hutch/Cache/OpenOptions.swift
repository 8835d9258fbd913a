/// How a cache is to be opened. An object, since it is large and passed on from call to call.
final class OpenOptions {
  /// Converts between values and what the store keeps of them.
  var codec: Codec?
  /// Converts between a host's objects and values.
  var objectCodec: ObjectCodec?
  /// Those that can be changed in an open cache.
  var change = Cache.OptionChange()
  var writePolicy = WritePolicy.standard
  var memory = TierLimits.defaultMemory
  /// Which fields of `memory` the caller has set.
  var memoryGiven = LimitFields.all
  /// The store's.
  var disk = StorageOptions()
  /// Host objects are released only when the host asks for it.
  var drainsReleases = false
  var tasks = TaskOptions()
}

/// The runner of a cache's tasks.
struct TaskOptions {
  var workers = 2
  /// How many tasks may wait; 0: any number. Nil: not chosen.
  var length: Int?
  /// How long a close waits for tasks. Nil: not chosen.
  var closeDeadline: Int64?
  /// Tells the host what came of a task.
  var deliver: TaskQueue.Deliver = { _ in }
  /// The host's queue that the tasks run on. Nil: the cache's own.
  var hosts: QueueHandle?

  /// The cache's own: for the work in the background, and the tasks if the host has no queue for
  /// them.
  func makeQueue() throws(Failure) -> TaskQueue {
    try TaskQueue(
      width: hosts == nil ? max(1, workers) : 1, hasThreads: workers > 0, length: length ?? 0,
      deliver: deliver)
  }
}
