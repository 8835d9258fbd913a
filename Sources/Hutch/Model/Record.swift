/// This folder is the domain: an entry in every tier, and what a tier learns of entries. It depends
/// on System alone; the tiers, the stores and the cache depend on it.
///
/// An entry's metadata. One record travels with the entry through every tier, so a value that is
/// promoted from disk keeps its expiry, cost, extended data and version. Times are Unix
/// nanoseconds, durations nanoseconds.
struct Record {
  /// Drawn when the write was submitted; a directory never uses a version twice.
  var version: UInt64 = 0
  /// The time of the last write or touch.
  var created: Int64 = 0
  /// The time of the last read, as far as it is recorded.
  var accessed: Int64 = 0
  /// The end of the entry's own time to live. 0: the tier's time to live counts. `Record.never`:
  /// none, although the tier has one.
  var expires: Int64 = 0
  /// The entry's own time to idle. 0: the tier's. `Record.never`: none.
  var timeToIdle: Int64 = 0
  /// Replaces the charge in the memory tier. 0: none. `Record.noCost`: a charge of 0.
  var cost: UInt64 = 0
  /// The size of the value in bytes; of what a codec made of it, if there is a codec.
  var size = 0
  /// The size of extended data and tag (Extended) in bytes.
  var extendedSize = 0
  /// XXH3 (64 bits) of the `size` bytes. 0: not computed.
  var checksum: UInt64 = 0
  /// With a codec: the size of the value.
  var decodedSize = 0
  /// The codec, and the tag's size above it. One field: the record is whole words, which are copied
  /// in pairs.
  var codecAndTag: UInt64 = 0

  static let never = Int64.max
  static let noCost = UInt64.max
  /// No value is larger: beyond this, sums of sizes could overflow.
  static let largestSize = 1 << 46
}

/// The ages of a tier, for entries without their own. 0: none.
struct Ages: Equatable {
  var timeToLive: Int64 = 0
  var timeToIdle: Int64 = 0
  private var flags: UInt8 = 0

  init(timeToLive: Int64 = 0, timeToIdle: Int64 = 0, actOnTrim: Bool = false) {
    self.timeToLive = timeToLive
    self.timeToIdle = timeToIdle
    self.actOnTrim = actOnTrim
  }

  /// The ages end no entry by themselves (HUTCH_OPEN_AGES_ON_TRIM): a trim removes the entries that
  /// have expired under `strict`. Access times are kept as for ages that end entries.
  var actOnTrim: Bool {
    @inline(__always) get { flags & 1 != 0 }
    set { flags = flags & ~1 | (newValue ? 1 : 0) }
  }

  /// For memory: access times are kept as if there were a time to idle: the disk tier has one.
  var keepsAccesses: Bool {
    @inline(__always) get { flags & 2 != 0 }
    set { flags = flags & ~2 | (newValue ? 2 : 0) }
  }

  /// The same ages, as they act in a trim.
  var strict: Ages { Ages(timeToLive: timeToLive, timeToIdle: timeToIdle) }

  /// True if there is any, or access times are kept.
  @inline(__always) var any: Bool { timeToLive != 0 || timeToIdle != 0 || keepsAccesses }

  /// True if the life of an entry with this time to idle of its own depends on its last access.
  @inline(__always)
  func mayIdle(own: Int64) -> Bool {
    own != 0 ? own != Record.never : timeToIdle != 0 || keepsAccesses
  }

  static func == (a: Ages, b: Ages) -> Bool {
    a.timeToLive == b.timeToLive && a.timeToIdle == b.timeToIdle
      && a.keepsAccesses == b.keepsAccesses
  }
}

extension Record {
  /// The tag's part of `extendedSize`.
  @inline(__always)
  var tagSize: UInt8 {
    get { UInt8(truncatingIfNeeded: codecAndTag >> 32) }
    set { codecAndTag = UInt64(newValue) << 32 | codecAndTag & 0xFFFF_FFFF }
  }

  /// The id of the codec whose output the bytes are, as a store keeps them; 0: they are the value.
  @inline(__always)
  var codec: UInt32 {
    get { UInt32(truncatingIfNeeded: codecAndTag) }
    set { codecAndTag = codecAndTag & ~0xFFFF_FFFF | UInt64(newValue) }
  }

  /// The size of the value itself.
  @inline(__always) var valueSize: Int { codec == 0 ? size : decodedSize }

  /// The record of the value itself, whose checksum is not known if there is a codec.
  @inline(__always)
  var ofValue: Record {
    if codec == 0 { return self }
    var record = self
    record.size = decodedSize
    record.checksum = 0
    record.codec = 0
    record.decodedSize = 0
    return record
  }

  /// The end of the entry's time to live; `Record.never` if there is none. A `created` in the
  /// future (the wall clock was set back across a reboot) counts as now.
  @inline(never)
  func endOfLife(at now: Int64, under ages: Ages) -> Int64 {
    if expires == Record.never { return expires }
    if expires != 0 {
      return created > now ? Record.sum(now, Record.difference(expires, created)) : expires
    }
    if ages.timeToLive == 0 || ages.actOnTrim { return Record.never }
    return Record.sum(min(created, now), ages.timeToLive)
  }

  /// The end of the entry's time to idle, if it is not read before.
  @inline(never)
  func endOfIdle(at now: Int64, under ages: Ages) -> Int64 {
    let idle = timeToIdle != 0 ? timeToIdle : ages.actOnTrim ? 0 : ages.timeToIdle
    if idle == 0 || idle == Record.never { return Record.never }
    return Record.sum(min(max(accessed, created), now), idle)
  }

  /// An entry expires at that time, not after it.
  @inline(never)
  func isExpired(at now: Int64, under ages: Ages) -> Bool {
    now >= endOfLife(at: now, under: ages) || now >= endOfIdle(at: now, under: ages)
  }

  /// True if the entry can expire at all, be it for a trim alone or in the disk tier by being idle.
  @inline(never)
  func mayExpire(under ages: Ages) -> Bool {
    (expires != 0 ? expires != Record.never : ages.timeToLive != 0)
      || ages.mayIdle(own: timeToIdle)
  }

  /// The record after a `touch`. A duration of 0 keeps the entry's own.
  func touched(at now: Int64, timeToLive: Int64, timeToIdle idle: Int64) -> Record {
    var record = self
    record.created = now
    record.accessed = now
    if timeToLive != 0 {
      record.expires = Record.end(of: timeToLive, from: now)
    } else if expires != 0 && expires != Record.never {
      record.expires = Record.expiry(
        Record.sum(now, max(1, Record.difference(expires, created))))
    }
    if idle != 0 { record.timeToIdle = idle }
    return record
  }

  /// The `expires` of an entry whose own time to live begins now. One nanosecond has passed when
  /// the call returns, which a clock that is read in steps of milliseconds does not show.
  @inline(never)
  static func end(of timeToLive: Int64, from now: Int64) -> Int64 {
    switch timeToLive {
    case 0, never: timeToLive
    case 1: expiry(now)
    default: expiry(sum(now, timeToLive))
    }
  }

  /// An `expires`: 0 is none, so an end in 1970 to the nanosecond comes one earlier.
  private static func expiry(_ time: Int64) -> Int64 { time == 0 ? -1 : time }

  /// a + b, or the nearest representable number.
  static func sum(_ a: Int64, _ b: Int64) -> Int64 {
    let (value, overflow) = a.addingReportingOverflow(b)
    return overflow ? (b > 0 ? Int64.max : Int64.min) : value
  }

  /// a - b, or the nearest representable number.
  static func difference(_ a: Int64, _ b: Int64) -> Int64 {
    let (value, overflow) = a.subtractingReportingOverflow(b)
    return overflow ? (b < 0 ? Int64.max : Int64.min) : value
  }
}

/// The times that a touch gives an entry.
struct NewTimes {
  /// When the touch began, by its first look at the clock.
  private(set) var moment: Moment
  private let timeToLive: Int64
  private let timeToIdle: Int64
  /// The entry was written, or touched, after the moment, and has kept that time. The touch is to
  /// be made once more, at a later moment: of a time that lies in the future by then the clock was
  /// set back, and such an entry counts as written now.
  private(set) var isEarly = false
  private var isRenewed = false

  init(timeToLive: Int64, timeToIdle: Int64, at moment: Moment) {
    self.moment = moment
    self.timeToLive = timeToLive
    self.timeToIdle = timeToIdle
  }

  mutating func renew(at moment: Moment) {
    self.moment = moment
    isEarly = false
    isRenewed = true
  }

  mutating func set(_ record: Record) -> Record {
    isEarly = !isRenewed && record.created > moment.time
    return record.touched(
      at: isEarly ? record.created : moment.time, timeToLive: timeToLive, timeToIdle: timeToIdle)
  }

  /// A copy of an entry with the new times.
  @inline(never)
  mutating func touched(_ entry: UnownedBlock) throws(Failure) -> Block {
    try entry.copied(with: set(entry.record))
  }
}
