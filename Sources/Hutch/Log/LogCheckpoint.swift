import CSystem

/// The file `hutch-checkpoint`: from where, after a loss of power, the log can be read without the
/// index. It has two places, which are written in turn, so one of them is whole at any moment.
///
///      0  check     XXH3 of all that follows
///      8  magic
///     16  number    of the checkpoint; the newer one of the two counts
///     24  seats     how many words of the segment table follow the head, 32 bits; the durability
///                   that was in force, 32
///     32  the words of `LogCheckpoint.At`
///         the segment table: a word for each segment that there is
///
/// All that a checkpoint names is on the disk before the checkpoint is written. What is overwritten
/// later shows by the addresses of its entries.
final class LogCheckpoint {
  enum At {
    static let check = 0
    static let magic = 1
    static let number = 2
    static let seats = 3
    /// The inode of the log: a checkpoint beside a copy of it does not count.
    static let log = 4
    /// As in the index: format, secrets, limits.
    static let format = 5
    static let secrets = 6
    static let limits = 10
    /// Where the new entries end, and the number of the active segment; 0: there is none.
    static let end = 16
    static let active = 17
    /// The number of the next segment.
    static let next = 18
    static let floor = 19
    static let newFrom = 20
    static let keptFrom = 21
    static let lostFrom = 22
    static let lostTo = 23
    static let version = 24
    static let bootOffset = 25
    /// Of a recovery's own checkpoint, and of those before its entries have their slots: as in the
    /// index.
    static let certainFrom = 26
  }

  static let name = LeftOvers.checkpoint
  /// "hutchchk", little-endian.
  private static let magic: UInt64 = 0x6B68_6368_6374_7568
  private static let placeSize = 1 << 20

  private typealias Head = InlineArray<27, UInt64>

  /// The words of `At`.
  private var head = Head(repeating: 0)
  private var seats = GrowingArray<UInt64>()

  init() { self[At.magic] = LogCheckpoint.magic }

  @inline(__always)
  subscript(_ at: Int) -> UInt64 {
    get { head[at] }
    set { head[at] = newValue }
  }

  var seatCount: Int { seats.count }
  /// True: the content file of each later entry reached the disk before the entry was written.
  var hasSyncedFiles: Bool { self[At.seats] >> 32 >= UInt64(Durability.power.rawValue) }
  func seat(_ index: Int) -> SeatWord { SeatWord(seats[index]) }

  func add(_ seat: SeatWord) throws(Failure) { try seats.append(seat.bits) }

  static let headSize = MemoryLayout<Head>.size
  private var seatBytes: UnsafeMutableRawBufferPointer {
    UnsafeMutableRawBufferPointer(seats.elements)
  }

  /// What `check` is to be.
  private var sum: UInt64 {
    var sum = Checksum.Sum()
    withUnsafeBytes(of: &head) { sum.add(Bytes(rebasing: $0[8...])) }
    sum.add(Bytes(seatBytes))
    return sum.value
  }

  /// Makes the file, without a checkpoint, if there is none. Called by each opening, and by nothing
  /// later: another program may be removing the directory. If that fails, no checkpoint can be
  /// written.
  static func makeFile(in directory: Directory) {
    _ = try? open(in: directory, O_RDWR | O_CREAT)
  }

  /// Nil: there is no file.
  private static func open(
    in directory: Directory, _ flags: Int32
  ) throws(Failure) -> Descriptor? {
    guard
      let number = Files.openBeneath(
        Files.path(name), at: directory.descriptor, flags | O_NONBLOCK)
    else {
      if Files.isMissing { return nil }
      throw .opening("cannot open the checkpoint")
    }
    return Descriptor(owning: number)
  }

  /// Writes the checkpoint to its place, and waits until it is on the disk. `isFirst`: perhaps the
  /// names of the files are not on the disk yet. `tierDown`: there is no file, so none counts until
  /// an opening has made it.
  func write(in directory: Directory, isFirst: Bool) throws(Failure) {
    self[At.seats] = self[At.seats] & ~0xFFFF_FFFF | UInt64(seatCount)
    self[At.check] = sum
    guard let file = try LogCheckpoint.open(in: directory, O_RDWR) else {
      throw Failure(.tierDown, "hutch-checkpoint is not in the directory")
    }
    guard let status = Files.status(of: file.number) else {
      throw .system("cannot look at the checkpoint")
    }
    // Or the file was removed, and an opening has made it anew.
    let isNew = isFirst || status.size <= LogCheckpoint.placeSize
    // On a full disk there is room for the next one, too.
    for place in 0..<2 {
      try Files.reserve(
        file.number, place * LogCheckpoint.placeSize, LogCheckpoint.headSize + seatBytes.count)
    }
    let place = Int(self[At.number] & 1) * LogCheckpoint.placeSize
    guard withUnsafeBytes(of: &head, { Files.write($0, to: file.number, at: place) }),
      Files.write(Bytes(seatBytes), to: file.number, at: place + LogCheckpoint.headSize),
      Files.syncData(file.number)
    else {
      throw .system("cannot write the checkpoint")
    }
    if isNew { try LogCheckpoint.syncNames(of: directory) }
  }

  /// Brings the names of the checkpoint, the index and the log to the disk, and that of the
  /// directory itself, which may be as new.
  private static func syncNames(of directory: Directory) throws(Failure) {
    guard
      let number = Files.open(Files.path(".."), at: directory.descriptor, O_RDONLY | O_DIRECTORY)
    else {
      // This process may not read the parent.
      return try Files.syncAll(at: directory.descriptor)
    }
    let parent = Descriptor(owning: number)
    guard Files.sync(directory.descriptor), Files.sync(parent.number) else {
      throw .system("cannot sync the directory")
    }
  }

  /// From here on no checkpoint counts, also after a loss of power.
  static func void(in directory: Directory) throws(Failure) {
    guard let file = try open(in: directory, O_RDWR) else { return }
    var none: UInt64 = 0
    for place in 0..<2 {
      guard
        withUnsafeBytes(
          of: &none,
          { Files.write($0, to: file.number, at: place * placeSize + At.magic * 8) })
      else { throw .system("cannot write the checkpoint") }
    }
    guard Files.syncData(file.number) else { throw .system("cannot write the checkpoint") }
  }

  /// The newest checkpoint of a log; nil: there is none that counts.
  static func read(in directory: Directory, log: FileStatus) throws(Failure) -> LogCheckpoint? {
    guard let file = try open(in: directory, O_RDONLY),
      let status = Files.status(of: file.number), status.isRegular
    else { return nil }
    let first = try read(file.number, place: 0)
    let second = try read(file.number, place: 1)
    let inode = log.identity.inode
    let numbers = (first?.number(for: inode) ?? 0, second?.number(for: inode) ?? 0)
    if numbers.0 == 0 && numbers.1 == 0 { return nil }
    return numbers.0 > numbers.1 ? first : second
  }

  private func number(for inode: UInt64) -> UInt64 {
    self[At.log] == inode ? self[At.number] : 0
  }

  private static func read(_ file: Int32, place: Int) throws(Failure) -> LogCheckpoint? {
    let offset = place * placeSize
    let found = LogCheckpoint()
    guard
      try withUnsafeMutableBytes(
        of: &found.head, { (head) throws(Failure) in try fill(head, from: file, at: offset) }),
      found[At.magic] == magic, found[At.number] & 1 == UInt64(place),
      found[At.seats] & 0xFFFF_FFFF <= UInt64(IndexAt.seatCount)
    else { return nil }
    try found.seats.append(0, Int(found[At.seats] & 0xFFFF_FFFF))
    guard
      try fill(found.seatBytes, from: file, at: offset + headSize),
      found.sum == found[At.check], found.isPlausible
    else { return nil }
    return found
  }

  /// False: the file ends before that.
  private static func fill(
    _ bytes: UnsafeMutableRawBufferPointer, from file: Int32, at offset: Int
  ) throws(Failure) -> Bool {
    try Files.fill(bytes, from: file, at: offset, "cannot read the checkpoint")
  }

  /// True if the numbers are possible. No later step checks what is checked here.
  private var isPlausible: Bool {
    let units = self[At.format] >> 32
    guard self[At.format] & 0xFFFF_FFFF == LogFormat.version,
      Int(units) + 4 >= LogFormat.smallestSegment, Int(units) + 4 <= LogFormat.largestSegment,
      self[At.number] >= 1, self[At.number] < 1 << 62
    else { return false }
    let next = self[At.next]
    guard next >= 1, next < LogFormat.segmentsEnd(units) else { return false }
    let last = next << units
    return self[At.end] >= 1 << units && self[At.end] <= last && self[At.floor] <= last
      && self[At.newFrom] <= last && self[At.keptFrom] <= last && self[At.lostTo] <= last
      && self[At.lostFrom] <= self[At.lostTo]
  }
}
