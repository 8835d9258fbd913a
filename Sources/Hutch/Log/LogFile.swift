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
///
/// A file is added before the change is committed that takes it from its entry, and is given out
/// only after the commit, when `settle` has been called: a reader that finds the entry finds the
/// file.
final class LogDeadFiles {
  /// Protects `files`, and what is stored to `count`.
  private let lock = Lock()
  /// The number of settled files, which come first. Relaxed: a caller that settles them sees it.
  private let count = Atomic<Int>(0)
  private var files = GrowingArray<DeadFile>()
  /// The place of the file that `next` has given out.
  private var moving = 0
  /// True if files have been added since `settle`. Protected by the directory's lock.
  private var hasNew = false

  @inline(__always) var isEmpty: Bool { count.load(ordering: .relaxed) == 0 }

  /// Adds a file, with the directory's lock held. Without memory for it, the file stays until a
  /// sweep finds it.
  func add(_ file: LogFile) {
    hasNew = true
    lock.withLock { try? files.append(DeadFile(name: file.name, size: Int64(file.charge))) }
  }

  /// Settles the files that were added, with the directory's lock held. No change is under way.
  @inline(__always)
  func settle() {
    if hasNew { settleNew() }
  }

  @inline(never)
  private func settleNew() {
    hasNew = false
    lock.withLock { count.store(files.count, ordering: .relaxed) }
  }

  /// A settled file; nil: there is none. It stays here until `forgetMoved`, so that no call takes
  /// its own work for done while another one is about to do it. One thread at a time moves files.
  func next() -> DeadFile? {
    if isEmpty { return nil }
    return lock.withLock {
      moving = count.load(ordering: .relaxed) - 1
      return moving < 0 ? nil : files.elements[moving]
    }
  }

  /// The file that `next` has given out has been moved, or is left to a sweep.
  func forgetMoved() {
    lock.withLock {
      // Others may have been settled behind it meanwhile.
      let last = count.load(ordering: .relaxed) - 1
      files.elements[moving] = files.elements[last]
      files.removeBySwapping(at: last)
      count.store(last, ordering: .relaxed)
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
      for i in 0..<LogPages.slots {
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

extension LogFile {
  /// The file that the fields of the entry at `start` name. Nil: the name is not one of the
  /// library's.
  @inline(never)
  init?(_ fields: LogEntry.Fields, of start: UnsafeMutableRawPointer) {
    let words = (fields.word(.suffixLow, of: start), fields.word(.suffixHigh, of: start))
    guard let suffix = FileSuffix(words: words) else { return nil }
    name = ContentName(number: fields.word(.fileNumber, of: start), suffix: suffix)
    size = LogFile.size(fields, of: start)
    checksum = SharedWords.load(start + LogEntry.At.checksum)
  }

  @inline(never)
  static func size(_ fields: LogEntry.Fields, of start: UnsafeMutableRawPointer) -> Int {
    Int(max(0, min(Int64(bitPattern: fields.word(.fileSize, of: start)), largest)))
  }
}

extension LogEntry.Head {
  func hasFile(_ other: LogFile) -> Bool { hasFile && fileNumber == other.name.number }
}
