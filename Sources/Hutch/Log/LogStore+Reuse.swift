import CSystem

// Segments that are used again before the log grows. With the lock held.
//
// The segment table has, beside each segment's place, how many units of it live: the entries that
// slots name. The number changes in the redo record of each put, removal and move, so it is exact
// after a kill. An oldest segment in which nothing lives is used again without a look at it. One
// of which at most a quarter lives is cleaned while the active segment fills, and all that lives in
// it is appended again, up to a third of a byte for each byte put: then the log does not grow, and
// the pages of the next segment are in memory already.
//
// Where most of the log is dead, but not the oldest segment, the oldest is cleaned too, within the
// cleaner's share (`mayMove`): data that stays goes to the kept stream once, and is out of the way
// of what comes and goes.

extension LogStore {
  /// The units of a segment's entries that slots name.
  @inline(__always)
  func liveUnits(_ number: UInt64) -> UInt64 { words.load(SeatWord.liveOffset(number)) }

  /// Lets a redo record add the units of an entry to its segment, and take those of another one.
  func setLive(
    _ redo: inout RedoRecord, adding units: UInt64, at address: LogAddress,
    taking gone: UInt64 = 0, at old: LogAddress = 0
  ) {
    let (number, other) = (address &>> unitShift, old &>> unitShift)
    let left = liveUnits(other) &- min(liveUnits(other), gone)
    if gone > 0 && (units == 0 || number != other) {
      redo.setInPlace(SeatWord.liveOffset(other), left)
    }
    if units > 0 {
      let live = number == other ? left : liveUnits(number)
      redo.setInPlace(SeatWord.liveOffset(number), live &+ units)
    }
  }

  /// Whether a segment is to be cleaned before the log grows.
  var canReuse: Bool { findReusable() != nil }

  /// That segment; nil: there is none, or there is a spare one.
  private func findReusable() -> Reusable? {
    if hasSpare || isRebuilding { return nil }
    guard let found = mostlyDead ?? blocking else { return nil }
    return isDurable && !isLong ? nil : found
  }

  /// Where the place of a segment has to wait for a checkpoint, the log first grows to what is
  /// appended between two of them.
  private var isLong: Bool { UInt64(segmentCount) &<< unitShift >= LogStore.mostAhead }

  /// An oldest segment that is mostly dead.
  private var mostlyDead: Reusable? {
    if isMostlyDead(.new) { return Reusable(stream: .new) }
    return isMostlyDead(.kept) ? Reusable(stream: .kept) : nil
  }

  private func isMostlyDead(_ stream: LogStream) -> Bool {
    if segmentCount(stream) < 2 { return false }
    let oldest = words.load(stream.oldest)
    // What was cleared is not counted.
    if start(of: oldest) < words.load(IndexAt.floor) { return true }
    let live = liveUnits(oldest)
    return live <= segmentUnits / 4 && (live == 0 || policy != .fifo)
  }

  /// The oldest segment, where the log has more than four times what lives.
  private var blocking: Reusable? {
    let count = segmentCount
    guard count > 8, count > 4 * usedSegments + 8, policy != .fifo, mayMove(segmentUnits / 4) else {
      return nil
    }
    let stream = victim(keepsAll: true, of: allowedSegments)
    return segmentCount(stream) < 2 ? nil : Reusable(stream: stream, isShare: true)
  }

  /// Cleans a segment before the log grows, as far as the active one is full: so there is a spare
  /// one when that ends. A put makes up no more than a few times its own size.
  func reuse(_ units: UInt64, at now: Int64) {
    guard let found = findReusable() else { return }
    let filled = segmentUnits &- min(room(.new), segmentUnits) &+ units
    var left = 8 &+ units
    while left > 0 && cleaned(found.stream) < filled {
      if clean(found, reserving: units, at: now, &left) == .atEnd {
        _ = release(asSpare: true)
        return
      }
    }
  }

  /// What is to be given back: an oldest segment that is mostly dead, where there are more than
  /// twice what lives needs. Where its place would have to wait for a checkpoint, there is none.
  private var dispensable: Reusable? {
    isRebuilding || isDurable || segmentCount <= 2 * usedSegments + 4 ? nil : mostlyDead
  }

  /// A look without the lock.
  var hasDispensable: Bool { dispensable != nil }

  /// Gives back what is dispensable, but for a spare segment. A slice; true: there is more.
  func giveBackDead(at now: Int64) -> Bool {
    var left: UInt64 = 512
    while left > 0 {
      guard let found = dispensable else { return false }
      if clean(found, reserving: 0, at: now, &left) == .atEnd && !release(asSpare: !hasSpare) {
        return false
      }
    }
    return true
  }

  /// `left`: the looks that are left. A copy costs one more for each 8 units.
  private func clean(
    _ found: Reusable, reserving units: UInt64, at now: Int64, _ left: inout UInt64
  ) -> Cleaned {
    let before = words.load(keptTarget.head)
    let cleaned = clean(
      found.stream, reserving: units, at: now, keepsAll: true, isShare: found.isShare,
      mayGrow: false)
    let copied = words.load(keptTarget.head) &- before
    left -= min(left, 1 &+ (copied < segmentUnits ? copied / 8 : 0))
    return cleaned
  }
}

/// The stream whose oldest segment is to be used again.
struct Reusable {
  let stream: LogStream
  /// Copies of its entries count for the cleaner's share.
  var isShare = false
}
