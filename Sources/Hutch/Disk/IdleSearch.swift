import CSystem
import Synchronization

/// The search for entries that have been idle for too long.
///
/// No index has the ends of idle times. So the search walks over all rows, one slice in each call
/// of maintenance. It uses the store's own `walk` and `remove`.
///
/// A search begins when the time `earliest` has come. No entry that can be idle for too long ends
/// before `earliest`, unless the search under way has yet to come to its row: writes, touches and
/// new limits lower `earliest`; a search sets it to `never` when it begins, and lowers it for each
/// entry that it leaves.
final class IdleSearch {
  /// Relaxed: a search that misses a new value begins with the next maintenance.
  private let earliest: Atomic<Int64>
  /// True while a thread runs a slice. That thread alone uses the fields below; other threads run
  /// no slice. It is no lock, since a slice calls the observer. Acquire when set, release when
  /// cleared.
  private let isRunning = Atomic<Bool>(false)
  /// Nil: no search is under way.
  private var place: WalkPlace?
  /// The latest `created` of the rows that the search has passed.
  private var latest = Int64.min
  // CLOCK_MONOTONIC.
  private var began: Int64 = 0
  private var next = Int64.min

  /// Begins at once.
  init() { earliest = Atomic(Int64.min) }

  /// Takes the place of another one, whose slice has come to no end in the child of a fork.
  init(after other: IdleSearch) {
    earliest = Atomic(other.place == nil ? other.earliest.load(ordering: .relaxed) : Int64.min)
  }

  /// An entry can have been idle for too long at this time; the least Int64: at any time.
  func note(_ end: Int64) {
    if end != Record.never { earliest.min(end, ordering: .relaxed) }
  }

  /// Called for a manifest that is new. False: it has no entry that ends by being idle.
  func begin(_ mayEnd: Bool) {
    earliest.store(mayEnd ? Int64.min : Record.never, ordering: .relaxed)
  }

  /// Runs one slice, if a search is under way or due. True if there are more rows.
  func run(in store: DiskTier, at moment: Moment) -> Bool {
    guard !isRunning.exchange(true, ordering: .acquiring) else { return false }
    defer { isRunning.store(false, ordering: .releasing) }
    if place == nil && !begins(in: store, at: moment.time) { return false }
    var reached = place ?? WalkPlace()
    do throws(Failure) {
      let victims = try look(&reached, in: store, at: moment.time)
      try remove(victims, from: store, at: moment)
    } catch {
      earliest.store(Int64.min, ordering: .relaxed)
      reached.isAtEnd = true
    }
    place = reached
    if reached.isAtEnd { end() }
    return place != nil
  }

  private func begins(in store: DiskTier, at now: Int64) -> Bool {
    let monotonic = Clock.read(CLOCK_MONOTONIC)
    // With a host's clock the host calls maintenance, and counts are exact.
    guard now >= earliest.load(ordering: .relaxed), store.clock.isHosts || monotonic >= next
    else { return false }
    earliest.store(Record.never, ordering: .relaxed)
    latest = Int64.min
    began = monotonic
    return true
  }

  /// A search that took long is followed by a pause of twenty times as long.
  private func end() {
    place = nil
    let now = Clock.read(CLOCK_MONOTONIC)
    let duration = now - began
    next = duration < 10_000_000 ? now : now + 20 * duration
  }

  /// The entries of the next rows that have ended, also by what the tiers above know.
  private func look(
    _ place: inout WalkPlace, in store: DiskTier, at now: Int64
  ) throws(Failure) -> GrowingArray<Int64> {
    let ages = store.ages
    var victims = GrowingArray<Int64>()
    var failure: Failure?
    func end(_ record: Record) -> Int64 {
      let idle = record.endOfIdle(at: now, under: ages)
      // The sweep finds the entries whose ids are in the order of `created`.
      guard record.expires == 0 && record.created < latest else { return idle }
      return min(idle, record.endOfLife(at: now, under: ages))
    }
    try store.walk(&place, at: nil) { key, entry in
      guard failure == nil, key.count > 0 else { return }
      var record = entry.record
      if now >= end(record),
        let time = store.observer?.lastAccess(of: key, record.version), time > record.accessed
      {
        store.noteAccess(key, store.hash.entry(key), at: time)
        record.accessed = time
      }
      let end = end(record)
      latest = max(latest, record.created)
      guard now >= end else { return note(end) }
      do throws(Failure) { try victims.append(entry.id) } catch { failure = error }
    }
    if let failure { throw failure }
    return victims
  }

  private func remove(
    _ victims: borrowing GrowingArray<Int64>, from store: DiskTier, at moment: Moment
  ) throws(Failure) {
    if victims.isEmpty { return }
    let ages = store.ages
    _ = try store.remove(victims, 0..<victims.count, to: nil, at: moment) { _, record in
      if record.isExpired(at: moment.time, under: ages) { return true }
      // It was read since the walk.
      note(moment.time)
      return false
    }
  }
}
