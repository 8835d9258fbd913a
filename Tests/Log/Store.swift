internal import CHutch
import CLogTests
import CSystem
import Synchronization

// What the log store's test programs have in common: a directory of their own, values that say
// whose they are, and a judge.

func fail(_ words: StaticString, _ numbers: Int...) -> Never {
  var line = "FAILED: \(words)"
  for number in numbers { line += " \(number)" }
  print(line)
  exit(1)
}

func check(_ holds: Bool, _ words: StaticString, _ numbers: Int...) {
  if holds { return }
  var line = "FAILED: \(words)"
  for number in numbers { line += " \(number)" }
  print(line)
  exit(1)
}

func trying<R: ~Copyable>(_ body: () throws(Failure) -> R) -> R {
  do throws(Failure) { return try body() } catch {
    print("FAILED: status \(error.status.code), errno \(error.system)")
    puts(UnsafeRawPointer(error.words).assumingMemoryBound(to: CChar.self))
    exit(1)
  }
}

/// Replayable: xorshift.
struct Random {
  var state: UInt64
  init(_ seed: UInt64) { state = seed &* 0x9E37_79B9_7F4A_7C15 | 1 }
  mutating func next(_ below: Int) -> Int {
    state ^= state << 13
    state ^= state >> 7
    state ^= state << 17
    return Int(state >> 11) % below
  }
}

/// The seed that an argument names, or a new one. It is printed, so that a run can be repeated.
func seed(_ argument: UnsafeMutablePointer<CChar>?) -> UInt64 {
  let seed =
    argument.map { UInt64(strtoull($0, nil, 10)) }
    ?? UInt64(Clock.read(CLOCK_REALTIME) / 1000 % 1_000_000)
  print("seed \(seed)")
  return seed
}

/// Value number `round` of key number `key`: its bytes follow from both.
struct Value {
  /// Some are large beside a small segment, which then ends early.
  static func size(_ key: Int, _ round: Int) -> Int {
    16 + (key &* 31 &+ round &* 17) % 400 + (key % 16 == 15 ? 6000 : 0)
  }

  static func fill(_ target: UnsafeMutableRawBufferPointer, _ key: Int, _ round: Int) {
    target.storeBytes(of: UInt64(key), toByteOffset: 0, as: UInt64.self)
    target.storeBytes(of: UInt64(round), toByteOffset: 8, as: UInt64.self)
    for i in 16..<target.count { target[i] = UInt8(truncatingIfNeeded: key &+ round &* 7 &+ i) }
  }

  /// The round of a value that is whole; nil: it is no value of that key.
  static func round(of value: Bytes, _ key: Int) -> Int? {
    guard value.count >= 16,
      value.loadUnaligned(fromByteOffset: 0, as: UInt64.self) == UInt64(key)
    else { return nil }
    let number = value.loadUnaligned(fromByteOffset: 8, as: UInt64.self)
    guard number < 1 << 40 else { return nil }
    let round = Int(number)
    guard value.count == size(key, round) else { return nil }
    for i in 16..<value.count
    where value[i] != UInt8(truncatingIfNeeded: key &+ round &* 7 &+ i) { return nil }
    return round
  }
}

extension LogStore {
  static func openAt(_ path: String, _ limits: TierLimits?) -> LogStore {
    trying { () throws(Failure) in
      let text = strdup(path)!
      defer { free(text) }
      let directory = try Directory.open(path: text)
      return try LogStore.open(directory, limits: limits)
    }
  }

  static func moment() -> Moment {
    Clock(function: nil, context: nil, release: nil).moment()
  }

  func withKey<R>(_ number: Int, _ body: (Bytes, UInt64) -> R) -> R {
    var key = (UInt64(number), UInt64(number) &* 0x9E37_79B9)
    return withUnsafeBytes(of: &key) { body($0, hash.entry($0)) }
  }

  @discardableResult
  func put(
    _ key: Int, _ round: Int, at moment: Moment, inFile: Bool = false,
    _ change: (inout Record) -> Void = { _ in }
  ) -> LogWrite {
    withKey(key) { bytes, hash in
      var record = Record()
      record.version = nextVersion.pointee.wrappingAdd(1, ordering: .relaxed).oldValue
      record.created = moment.time
      record.size = Value.size(key, round)
      change(&record)
      let block = trying { () throws(Failure) in try Block.allocate(key: bytes, record: record) }
      Value.fill(block.unowned.value, key, round)
      var write = LogWrite(.put, bytes, hash)
      if inFile || record.extendedSize > 0 || key & 1 == 0 {
        write.entry = block.unowned
      } else {
        // As a put of the disk tier alone.
        write.value = Bytes(block.unowned.value)
        write.times = record
      }
      if inFile { write.file = file(Bytes(block.unowned.value)) }
      self.write(&write, at: moment)
      write.entry = nil
      // As the store's owner does: what has an entry now is loose no more.
      if inFile { noteLoose(-1) }
      return write
    }
  }

  /// A content file with this value, on its way to an entry.
  private func file(_ value: Bytes) -> LogFile {
    noteLoose(1)
    return trying { () throws(Failure) in
      let name = try ContentName.random()
      let made = Descriptor(owning: try ContentFiles.create(name, in: directory))
      guard Files.write(value, to: made.number) else { throw .system("cannot write a file") }
      try ContentFiles.giveName(made.number, name, in: directory, .nothing)
      return LogFile(name: name, size: value.count, checksum: Checksum.xxh3(value))
    }
  }

  /// Whether there are more content files than entries with one.
  var hasOrphans: Bool {
    guard ContentFiles.hasFolder(in: directory) else { return false }
    var files = 0
    for folder in 0...255 {
      _ = ContentPath.withFolder(UInt8(folder)) { path in
        Files.list(path, at: directory.descriptor) { name, _ in
          if ContentName(name) != nil { files += 1 }
          return true
        }
      }
    }
    var place = LogPlace()
    var found = WalkPage()
    trying { () throws(Failure) in
      while try step(&place, into: &found) {
        for entry in found.entries.elements {
          let key = found.key(of: entry)
          if find(key, hash.entry(key))?.entry.hasFile ?? false { files -= 1 }
        }
      }
    }
    return files > 0
  }

  /// Whether a copy in the stream of kept entries does not say where its entry was, or not that it
  /// has been replaced or removed.
  var hasWrongCopies: Bool {
    var number: UInt64? = segmentCount(.kept) == 0 ? nil : words.load(IndexAt.keptOldest)
    var position = words.load(IndexAt.keptCleaning)
    while let segment = number {
      let end = segment == active(.kept) ? words.load(IndexAt.keptHead) : start(of: segment + 1)
      while position < end, let seat = seat(of: position), let entry = entry(seat, position) {
        position += entry.units
        if entry.isRecord { continue }
        position += LogEntry.trailerUnits
        guard let trailer = trailer(entry) else { return true }
        let origin = SharedWords.load(trailer) & LogFormat.addressMask
        let isNamed = slot(of: entry, hash.entry(entry.key)) != nil
        // Removed without a record.
        if origin == 0 && !isNamed { continue }
        if origin == 0 || origin >= words.load(IndexAt.head) && words.load(IndexAt.head) != 0 {
          return true
        }
        if !isNamed && SharedWords.load(trailer + 8) == 0 { return true }
      }
      number = following(segment, .kept)
      position = number.map { start(of: $0) } ?? 0
    }
    return false
  }

  /// Deletes the files that no entry has any more.
  func deleteDead() {
    while let file = dead.next() {
      dead.forgetMoved()
      ContentFiles.discard(file.name, in: directory)
      noteLoose(-1)
    }
  }

  @discardableResult
  func remove(_ key: Int, at moment: Moment) -> LogWrite {
    withKey(key) { bytes, hash in
      var write = LogWrite(.remove, bytes, hash)
      self.write(&write, at: moment)
      return write
    }
  }

  @discardableResult
  func touch(_ key: Int, at moment: Moment) -> LogWrite {
    withKey(key) { bytes, hash in
      var write = LogWrite(.touch, bytes, hash)
      write.times.created = moment.time
      write.times.expires = moment.time + 1_000_000_000_000
      self.write(&write, at: moment)
      return write
    }
  }

  /// The round of what a key has; -1: nothing.
  func round(_ key: Int, at moment: Moment, isAccess: Bool = false) -> Int {
    withKey(key) { bytes, hash in
      let block = trying { () throws(Failure) in
        try get(bytes, hash, at: moment, isAccess: isAccess)
      }
      guard let value = block.unowned?.value else { return -1 }
      guard let round = Value.round(of: Bytes(value), key) else {
        fail("a value is not what was put, of key", key)
      }
      return round
    }
  }
}

/// A directory for one test, removed with all that is in it.
struct Scratch: ~Copyable {
  let path: String

  init(_ name: String) {
    // In memory, if there is such a place: what a kill leaves is the same there.
    let inMemory = access("/dev/shm", W_OK) == 0
    let base = getenv("TMPDIR").map { String(cString: $0) } ?? (inMemory ? "/dev/shm" : "/tmp")
    path = base + "/hutch-log-\(getpid())-" + name
    Scratch.empty(path)
  }

  deinit { Scratch.empty(path) }

  static func empty(_ path: String) {
    // Without a look at the 256 folders that content files may be in, if there is none.
    let hasFiles = access(path + "/content", F_OK) == 0 || access(path + "/trash", F_OK) == 0
    if hasFiles, let directory = try? Directory.open(path: path, creating: false) {
      ContentFiles.removeAll(in: directory)
    }
    for name in ["hutch.lock", "hutch-index", "hutch-log", "hutch-checkpoint", "manifest.sqlite"] {
      unlink(path + "/" + name)
    }
    rmdir(path)
  }
}
