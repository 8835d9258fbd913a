import Synchronization

/// The content file that has an entry's value.
struct LogFile {
  let name: ContentName
  /// The value's bytes.
  let size: Int
  /// XXH3 of the value.
  let checksum: UInt64

  /// No file system has a larger file. A larger size in an entry is damage.
  static let largest: Int64 = 1 << 46

  /// The bytes of the disk that a file of this size takes: whole blocks.
  static func charge(_ size: Int) -> UInt64 { (UInt64(size) &+ 4095) & ~4095 }
  var charge: UInt64 { LogFile.charge(size) }
}

/// Content files that no entry names any more, until the store's owner has moved them to the trash
/// with the directory's lock free. Its lock comes after the directory's.
final class LogDeadFiles {
  private let lock: Lock
  /// The number of the files here. Relaxed: a caller that adds one sees it.
  private let count = Atomic<Int>(0)
  private var files = GrowingArray<DeadFile>()

  init() throws(Failure) { lock = try Lock() }

  @inline(__always) var isEmpty: Bool { count.load(ordering: .relaxed) == 0 }

  /// Without memory for it, the file stays until a sweep finds it.
  func add(_ file: LogFile) {
    lock.withLock {
      if (try? files.append(DeadFile(name: file.name, size: Int64(file.charge)))) != nil {
        count.wrappingAdd(1, ordering: .relaxed)
      }
    }
  }

  func pop() -> DeadFile? {
    if isEmpty { return nil }
    return lock.withLock {
      guard let file = files.popLast() else { return nil }
      count.wrappingSubtract(1, ordering: .relaxed)
      return file
    }
  }

  // A fork holds the lock.

  func hold(until end: Deadline) -> Bool { lock.lock(until: end) }
  func letGo() { lock.unlock() }
  /// In the child of a fork, which has no other thread yet: the parent deletes the files.
  func forget() {
    files.removeAll()
    count.store(0, ordering: .relaxed)
  }
  /// In the child of a fork that was not prepared: the lock may be held by a thread of the parent.
  /// The list, which may be in the midst of a change, is left alone and looks empty.
  func renew() {
    lock.renew()
    count.store(0, ordering: .relaxed)
  }
}

// With the lock held.
extension LogStore {
  /// An entry loses its content file, if it has one, by the change that is about to be committed.
  /// The file is counted as loose before the commit, and deleted after it.
  func loseFile(of entry: LogEntry.Head) {
    guard let file = entry.file else { return }
    noteLoose(1)
    if file.name.number == carried { hasLostCarried = true } else { dead.add(file) }
  }

  /// Every entry loses its content file.
  func loseAllFiles() {
    eachPage { page in
      for i in 0..<LogPages.buckets * LogPages.bucketSlots {
        let word = SlotWord(SharedWords.load(page.base + i * 8))
        guard word.names, let seat = seat(of: word.address), let entry = entry(seat, word.address)
        else { continue }
        loseFile(of: entry)
      }
    }
  }

  /// Adds to the number of content files that no entry names. May be called without the lock.
  func noteLoose(_ change: Int) {
    if change != 0 { words.add(IndexAt.loose, change) }
  }

  var loose: Int { Int(truncatingIfNeeded: words.load(IndexAt.loose)) }

  /// The bytes of removed files that may wait to be deleted. Under a limit of cost none may: what
  /// is written next, by any process, does not count them.
  var roomForTrash: Int64 { words.load(IndexAt.limits) == 0 ? 64 << 20 : 0 }
}

extension LogEntry.Head {
  func hasFile(_ other: LogFile) -> Bool { file?.name.number == other.name.number }
}
