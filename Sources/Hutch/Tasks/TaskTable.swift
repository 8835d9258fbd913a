import CSystem

/// The first task of each key or identifier, by hash; behind each stand the others, in the order of
/// their submission.
///
/// Tasks of one key run one after the other: the first is in a lane or runs, and when it ends the
/// next one takes its place. Keys are distinguished only by their keyed hash, which has 52 bits
/// beside the kind of entry: two keys with the same hash only wait for each other. Tasks of one
/// identifier run as one: when the first begins, all leave the table with it.
///
/// Belongs to the queue, under its lock. The table works without memory to grow: the buckets then
/// become longer.
struct TaskTable: ~Copyable {
  private var buckets: UnsafeMutablePointer<TaskPointer?>?
  private var mask = 0
  private var count = 0

  deinit { free(buckets) }

  private func bucket(_ hash: UInt64) -> Int { KeyedHash.place(of: hash, mask: mask) }

  /// The number of tasks in the longest chain, for tests.
  var longestChain: Int {
    guard let buckets else { return 0 }
    var longest = 0
    for i in 0...mask {
      var length = 0
      var next = buckets[i]
      while let task = next {
        length += 1
        next = task.extras.pointee.bucketNext
      }
      longest = max(longest, length)
    }
    return longest
  }

  /// The first task with the key or identifier of `task`.
  func first(like task: TaskPointer) -> TaskPointer? {
    guard let buckets else { return nil }
    let extras = task.extras
    var next = buckets[bucket(extras.pointee.hash)]
    while let other = next {
      let its = other.extras
      if its.pointee.hash == extras.pointee.hash && other.has(.keyed) == task.has(.keyed)
        && its.pointee.identifierSize == extras.pointee.identifierSize
        && (extras.pointee.identifierSize == 0
          || memcmp(
            its.pointee.identifier!, extras.pointee.identifier!, extras.pointee.identifierSize)
            == 0)
      {
        return other
      }
      next = its.pointee.bucketNext
    }
    return nil
  }

  /// The first task of a key.
  func first(ofKey hash: UInt64) -> TaskPointer? {
    guard let buckets else { return nil }
    var next = buckets[bucket(hash)]
    while let other = next {
      if other.extras.pointee.hash == hash && other.has(.keyed) { return other }
      next = other.extras.pointee.bucketNext
    }
    return nil
  }

  /// `task` is the first of its name.
  mutating func insert(_ task: TaskPointer) throws(Failure) {
    if count > mask || buckets == nil {
      do throws(Failure) {
        try grow()
      } catch {
        guard buckets != nil else { throw error }
      }
    }
    let i = bucket(task.extras.pointee.hash)
    task.extras.pointee.bucketNext = buckets![i]
    buckets![i] = task
    count += 1
  }

  mutating func remove(_ task: TaskPointer) { replace(task, by: nil) }

  /// `new` becomes the first of its name in place of `old`; nil: no task of the name is left.
  mutating func replace(_ old: TaskPointer, by new: TaskPointer?) {
    guard let buckets else { return }
    let i = bucket(old.extras.pointee.hash)
    var previous: TaskPointer?
    var next = buckets[i]
    while let at = next, at != old {
      previous = at
      next = at.extras.pointee.bucketNext
    }
    guard next != nil else { return }
    var follower = old.extras.pointee.bucketNext
    if let new {
      new.extras.pointee.bucketNext = follower
      follower = new
    } else {
      count -= 1
    }
    if let previous {
      previous.extras.pointee.bucketNext = follower
    } else {
      buckets[i] = follower
    }
    old.extras.pointee.bucketNext = nil
  }

  private mutating func grow() throws(Failure) {
    let size = buckets == nil ? 64 : (mask + 1) * 2
    let grown = try Allocation.array(TaskPointer?.self, size)
    let old = buckets
    let oldSize = old == nil ? 0 : mask + 1
    buckets = grown
    mask = size - 1
    for i in 0..<oldSize {
      var next = old![i]
      while let task = next {
        next = task.extras.pointee.bucketNext
        let j = bucket(task.extras.pointee.hash)
        task.extras.pointee.bucketNext = grown[j]
        grown[j] = task
      }
    }
    free(old)
  }
}
