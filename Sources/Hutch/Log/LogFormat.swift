/// The layout of the file `hutch-index`: offsets in bytes. A cache line has 64 bytes.
enum IndexAt {
  // What the directory is: written once, before the file gets its name.
  static let magic = 0
  /// The format in the lower 32 bits, and above them n: a segment has 2^n units.
  static let format = 8
  /// The four secrets of the keys' hash.
  static let secrets = 16
  /// The device and the inodes of the files: copies of the files are another store
  /// (`LogStore.isUsable`).
  static let device = 48
  static let indexInode = 56
  static let logInode = 64

  // The boot in which the directory was last open, and how it was left.
  static let boot = 72
  static let bootOffset = 88
  /// 1: everything was on the disk when the last process closed it. 2: the flag is being set or
  /// removed, and may be on the disk. 0: it is not.
  static let clean = 96

  /// The number of content files of all processes that no entry names: files that are about to get
  /// an entry, and files that have lost theirs and are not in trash/ yet. The files of a process
  /// that dies are left to the next opening that is alone (LogStorage+Files). Changed without the
  /// lock.
  static let loose = 104

  // In a cache line of its own, since it is written all the time.
  static let lock = 128

  // The state, changed with the lock held. First of the stream of new entries.
  /// Where the next entry goes; 0: there is no active segment.
  static let head = 256
  /// Entries with lower addresses have been cleared.
  static let floor = 264
  /// The number of the next segment.
  static let next = 272
  /// The oldest segment's number.
  static let oldest = 280
  /// The address up to which the oldest segment has been cleaned.
  static let cleaning = 288
  static let count = 296
  /// The bytes of entries that are there, with their content files.
  static let live = 304
  /// The units that the cleaner has appended beyond its share of what was put.
  static let moved = 312
  /// How many segments there are, of both streams, with the spare one.
  static let segments = 320
  /// How many places of the file `hutch-log` have ever been used.
  static let places = 328
  /// How many pages of slots have ever been used.
  static let pages = 336
  /// One more than the number of a page of slots that is free; 0: there is none.
  static let sparePage = 344
  /// No page of slots has a higher level.
  static let top = 352
  /// Lower bounds for the ends of entries, of those written since the newest walk for expired
  /// entries began and of those written before; and how many such walks have begun
  /// (LogStore+Expiring).
  static let expiry = 360
  static let expiryBefore = 368
  static let walks = 376
  /// CLOCK_MONOTONIC: until when the newest walk is taken to be under way; 0: it has ended.
  static let walkEnd = 624

  // The limits that are in force, as in TierLimits.
  static let limits = 384

  /// The bytes of content files that entries name, whole blocks.
  static let files = 440
  /// Where the entries of the segment before the newest one end.
  static let last = 640

  /// The counter that a write is changing: one more than its index, `LogMarks.all`, or 0.
  static let marking = 432

  // The redo record: the number of words, then pairs of an offset and a value (RedoRecord).
  static let redo = 448

  /// The number of the active segment.
  static let active = 704
  // The same of the stream of kept entries.
  static let keptHead = 712
  static let keptOldest = 720
  static let keptCleaning = 728
  static let keptActive = 736
  /// How many segments it has.
  static let keptSegments = 744
  /// One more than the place of a segment that is in no stream; 0: there is none.
  static let spare = 752

  // Checkpoints, with the lock held (LogStore+Checkpoint). They are numbered from 1.
  /// How many have been begun, and the newest that is on the disk; 0: there is none.
  static let begun = 768
  static let durable = 776
  /// Where the log ended in the newest one that is on the disk, and its floor.
  static let durableEnd = 784
  static let durableFloor = 792
  /// CLOCK_BOOTTIME: when the newest one was begun. Its loss delays one.
  static let checkpointTime = 800
  /// The number of checkpoints that had been begun when the cleaner last evicted an entry.
  static let evicted = 808
  /// A recovery finds no entry of the stream below.
  static let newFrom = 816
  static let keptFrom = 824

  // A recovery, with the lock held (LogStore+Recovery).
  /// 1: the index is being made from a checkpoint, and counts only when that is done.
  static let recovering = 832
  /// The addresses of writes that the newest loss of power has taken: from, to. The recovered log
  /// ends at the first.
  static let lostFrom = 840
  static let lostTo = 848
  /// The segment of each stream whose entries get their slots next, the newest ones first; 0: the
  /// stream is done.
  static let rebuildNew = 856
  static let rebuildKept = 864
  /// Where the entries of `rebuildNew` end.
  static let rebuildEnd = 872

  /// The strongest durability of the openings, as Durability's raw value (LogStore+Durability).
  static let durability = 880
  /// The number of checkpoints that had been begun when a segment was last taken out of the table.
  static let released = 888
  /// 1: the disk has refused a sync, and the kernel may have forgotten bytes that are not on the
  /// disk (LogStore+Durability). Changed without the lock.
  static let failedToSync = 896

  /// A recovery: whether a kept entry has been replaced or removed is certain once all new entries
  /// from here on have got their slots (LogStore+Rebuilding).
  static let certainFrom = 904

  /// What the log says of the evictions since the newest checkpoint: 0: not of all. 1: there is a
  /// record of what the cleaner has passed, behind all of them. 2: as 0, and there will be none
  /// before the next checkpoint, since a recovery has passed entries too (LogStore+Checkpoint).
  static let passed = 912

  // Places that wait to be given back (LogStore+Places).
  /// How often a place has been left to wait, and the value of that when there was none any more.
  static let waiting = 920
  static let givenBack = 928

  /// How many places of the log and how many pages of slots every process maps that has the
  /// directory open: there are never more.
  static let mappedPlaces = 936
  static let mappedPages = 944

  /// A recovery: changes with each segment whose entries get their slots, and with the end.
  static let rebuildStep = 952

  /// The incarnations of the members' numbers: how often each number has been taken. UInt32 each.
  static let incarnations = 1024
  /// Of each member's number: the value of `waiting` for which all reads that could be under way
  /// have ended since. `.max`: the member does not read.
  static let readers = 2048

  static let seats = 4096
  static let pageTable = seats + seatCount * SeatWord.stride
  static let shared = pageTable + mostPages * 8
  static let versions = shared + LogShared.versions
  static let slots = shared + LogShared.byteCount

  /// The segments that the segment table has room for: there cannot be more.
  static let seatCount = 1 << 16
  /// There cannot be more pages with keys of their own: 2^top.
  static let highestTop = 20
  static let mostPages = 1 << highestTop
}

/// The place of an entry in everything that was ever appended in the directory, in units of 16
/// bytes. The upper bits are a segment's number. An address is never used twice, so it shows by
/// itself whether the entry that it names is still there.
typealias LogAddress = UInt64

/// The numbers that every file of a log store goes by.
enum LogFormat {
  /// "hutchlog", little-endian.
  static let magic: UInt64 = 0x676F_6C68_6374_7568
  static let version: UInt64 = 2

  static let unit = 16
  static let addressBits: UInt64 = 46
  static let addressMask: UInt64 = 1 << addressBits - 1

  /// A segment has 16 KB to 16 MB.
  static let smallestSegment = 14
  static let largestSegment = 24

  /// A segment has a thirty-second of the limit, or of the file system if that is smaller: so the
  /// segment that is being cleaned takes little of the room. A page of memory at least, else a
  /// store to one would bring blocks back of the next one that has been given up. `all`: the bytes
  /// of the file system; 0: it does not tell them.
  static func segmentShift(for limit: UInt64, of all: Int64) -> Int {
    let most = limit == 0 ? 23 : largestSegment
    let room = min(limit == 0 ? .max : limit, all > 0 ? UInt64(all) : .max)
    let wanted = 63 - max(room / 32, 1).leadingZeroBitCount
    return min(max(wanted, smallestSegment, Mapping.page.trailingZeroBitCount), most)
  }

  /// No segment has this number or a higher one: its addresses would be too large. `units`: 2^units
  /// are those of a segment.
  static func segmentsEnd(_ units: UInt64) -> UInt64 { (addressMask - 1 << 24) >> units }

  /// Whether a log may be opened whose next segment has this number. Each loss of power takes
  /// addresses too, and the log that is opened is to have half of them left.
  static func hasAddresses(_ next: UInt64, _ units: UInt64) -> Bool {
    next < segmentsEnd(units) / 2
  }

  @inline(__always)
  static func units(_ bytes: Int) -> UInt64 { UInt64(truncatingIfNeeded: (bytes &+ 15) >> 4) }
}

/// A word of the index: which entry a key has.
///
///     tag      16 bits of the key's hash; the lowest 6 say in which bucket of its page a lookup
///              begins
///     use       2 bits: how often the entry was read, up to 2; a reader counts. 3: the entry has
///              been evicted, and the slot is its ghost
///     address  46 bits
///
/// 0: unused, and no lookup goes beyond its bucket. 1: free, but lookups go on. A ghost is free,
/// too: it tells of a key that is put again that it was there (LogStore.freeSlot).
struct SlotWord: Equatable {
  let bits: UInt64

  @inline(__always) init(_ bits: UInt64) { self.bits = bits }

  @inline(__always)
  init(_ hash: UInt64, _ address: LogAddress, uses: UInt64) {
    bits = hash << 6 & 0xFFFF << 48 | uses << LogFormat.addressBits | address
  }

  static let unused = SlotWord(0)
  static let free = SlotWord(1)
  private static let oneUse: UInt64 = 1 << LogFormat.addressBits
  private static let ghost: UInt64 = 3 << LogFormat.addressBits
  /// The cleaner keeps a new entry that was read so often.
  static let mostUses: UInt64 = 2

  @inline(__always) var address: LogAddress { bits & LogFormat.addressMask }
  /// The number of reads that a word which names an entry has counted.
  @inline(__always) var uses: UInt64 { bits >> LogFormat.addressBits & 3 }
  @inline(__always) var withUse: SlotWord { SlotWord(bits + SlotWord.oneUse) }
  @inline(__always) var isGhost: Bool { bits & SlotWord.ghost == SlotWord.ghost }
  @inline(__always) var asGhost: SlotWord { SlotWord(bits | SlotWord.ghost) }
  /// True if the slot names an entry, or one that has gone with its segment.
  @inline(__always) var names: Bool { address > 1 && !isGhost }

  @inline(__always)
  func hasTag(of hash: UInt64) -> Bool { (bits ^ hash << 6) >> 48 == 0 }
  /// The bucket in which lookups of its key begin.
  @inline(__always) var home: Int { Int(bits >> 48 & 63) }
  @inline(__always) static func home(_ hash: UInt64) -> Int { Int(hash >> 42 & 63) }

  @inline(__always)
  static func == (a: SlotWord, b: SlotWord) -> Bool { a.bits == b.bits }
}

/// A word of the segment table: the place that a segment has in the file `hutch-log`, and its
/// stream. Its index is the segment's number modulo the table's size. A segment that the table does
/// not have has gone, with all entries in it.
struct SeatWord: Equatable {
  let bits: UInt64

  @inline(__always) init(_ bits: UInt64) { self.bits = bits }
  init(_ stream: LogStream, number: UInt64, place: Int) {
    bits = number << 17 | (stream == .kept ? 1 << 16 : 0) | UInt64(place)
  }

  static let none = SeatWord(0)

  @inline(__always) var number: UInt64 { bits >> 17 }
  @inline(__always) var isKept: Bool { bits & 1 << 16 != 0 }
  @inline(__always) var place: Int { Int(bits & 0xFFFF) }
  /// The place has had no segment before this one, in a store that has given up none.
  @inline(__always) var isFirstUse: Bool { number == UInt64(place) &+ 1 }

  static let stride = 16

  static func offset(_ number: UInt64) -> Int {
    IndexAt.seats + Int(number & UInt64(IndexAt.seatCount - 1)) * stride
  }

  /// The word behind: the units of the segment's entries that slots name (LogStore+Reuse).
  @inline(__always)
  static func liveOffset(_ number: UInt64) -> Int { offset(number) + 8 }

  @inline(__always)
  static func == (a: SeatWord, b: SeatWord) -> Bool { a.bits == b.bits }
}

/// A word of the page table: the page of slots that is in force for some keys, and its level. The
/// level grows with each division, so a word of the table never comes back. 0: there is no page.
struct PageWord: Equatable {
  let bits: UInt64

  @inline(__always) init(_ bits: UInt64) { self.bits = bits }
  init(page: Int, level: Int) { bits = UInt64(level) << 32 | UInt64(page + 1) }

  static let none = PageWord(0)

  @inline(__always) var page: Int { Int(bits & 0xFFFF_FFFF) - 1 }
  @inline(__always) var level: Int { Int(bits >> 32 & 0xFF) }

  static func offset(_ number: Int) -> Int { IndexAt.pageTable + number * 8 }

  @inline(__always)
  static func == (a: PageWord, b: PageWord) -> Bool { a.bits == b.bits }
}
