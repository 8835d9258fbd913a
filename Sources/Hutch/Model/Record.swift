/// This folder is the domain: what an entry is, in every tier, and what a tier is told of entries.
/// It knows System alone; the tiers, the stores and the cache know it.
///
/// An entry's metadata. ONE record travels with the entry through every tier, so that a
/// value that is promoted from disk keeps its expiry, cost, extended data and version.
/// Times are Unix nanoseconds, durations nanoseconds.
struct Record {
  /// Drawn when the write was submitted; never used twice in a directory.
  var version: UInt64 = 0
  /// When it was written or touched.
  var created: Int64 = 0
  /// When it was last read, as far as that is kept.
  var accessed: Int64 = 0
  /// When the entry's own time to live ends. 0: it has none of its own, the tier's
  /// counts. `Record.never`: it has none although the tier has one.
  var expires: Int64 = 0
  /// The entry's own time to idle. 0: the tier's. `Record.never`: none.
  var timeToIdle: Int64 = 0
  /// Replaces the charge in the memory tier. 0: none.
  var cost: UInt64 = 0
  /// Of the value, in bytes.
  var size = 0
  /// Of the extended data, in bytes.
  var extendedSize = 0
  /// XXH3 (64 bits) of the value. 0: not computed.
  var checksum: UInt64 = 0

  static let never = Int64.max
  /// No value is larger: beyond this sums of sizes could overflow.
  static let largestSize = 1 << 46
}

/// A tier's ages: what counts for entries that have none of their own. 0: none.
struct Ages: Equatable {
  var timeToLive: Int64 = 0
  var timeToIdle: Int64 = 0

  /// Whether there is any.
  @inline(__always) var any: Bool { timeToLive != 0 || timeToIdle != 0 }

  static func == (a: Ages, b: Ages) -> Bool {
    a.timeToLive == b.timeToLive && a.timeToIdle == b.timeToIdle
  }
}

extension Record {
  /// When the entry's time to live ends; `Record.never` if it does not. A `created` in the
  /// future (the wall clock was set back across a reboot) counts as now.
  func endOfLife(at now: Int64, under ages: Ages) -> Int64 {
    if expires == Record.never { return expires }
    if expires != 0 {
      return created > now ? Record.sum(now, Record.difference(expires, created)) : expires
    }
    return ages.timeToLive == 0 ? Record.never : Record.sum(min(created, now), ages.timeToLive)
  }

  /// When the entry has been idle for too long, unless it is read before.
  func endOfIdle(at now: Int64, under ages: Ages) -> Int64 {
    let idle = timeToIdle != 0 ? timeToIdle : ages.timeToIdle
    if idle == 0 || idle == Record.never { return Record.never }
    return Record.sum(min(max(accessed, created), now), idle)
  }

  /// An entry ends when its time comes, not after it.
  func isExpired(at now: Int64, under ages: Ages) -> Bool {
    now >= endOfLife(at: now, under: ages) || now >= endOfIdle(at: now, under: ages)
  }

  /// Whether time can end the entry at all.
  func mayExpire(under ages: Ages) -> Bool {
    (expires != 0 ? expires != Record.never : ages.timeToLive != 0)
      || (timeToIdle != 0 ? timeToIdle != Record.never : ages.timeToIdle != 0)
  }

  /// The record as `touch` leaves it. A duration of 0 keeps the entry's own.
  func touched(at now: Int64, timeToLive: Int64, timeToIdle idle: Int64) -> Record {
    var record = self
    record.created = now
    record.accessed = now
    if timeToLive != 0 {
      record.expires = Record.end(of: timeToLive, from: now)
    } else if expires != 0 && expires != Record.never {
      record.expires = Record.sum(now, max(1, Record.difference(expires, created)))
    }
    if idle != 0 { record.timeToIdle = idle }
    return record
  }

  /// The `expires` of an entry whose own time to live begins now.
  static func end(of timeToLive: Int64, from now: Int64) -> Int64 {
    timeToLive == 0 || timeToLive == never ? timeToLive : sum(now, timeToLive)
  }

  /// a + b, or the nearest that there is.
  static func sum(_ a: Int64, _ b: Int64) -> Int64 {
    let (value, overflow) = a.addingReportingOverflow(b)
    return overflow ? (b > 0 ? Int64.max : Int64.min) : value
  }

  /// a - b, or the nearest that there is.
  static func difference(_ a: Int64, _ b: Int64) -> Int64 {
    let (value, overflow) = a.subtractingReportingOverflow(b)
    return overflow ? (b < 0 ? Int64.max : Int64.min) : value
  }
}
