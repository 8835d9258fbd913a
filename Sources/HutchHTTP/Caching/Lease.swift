import CHutchHTTP
import CSystem

/// The right to make the request for a URL, among all sessions of all processes that share the disk
/// tier of a cache: an entry "LEASE " and the key of the URL, which is added if it is absent.
///
///     state     meaning
///     none      not asked for yet
///     awaited   another session has it: this one looks again, until the lease is gone
///     held      this session has it, and renews it while the request runs
///     over      this session makes its request without it
///
/// The owner removes the entry when its request has ended. The entry of an owner that was killed
/// keeps its version. A session that sees one version for a whole term takes the lease
/// over, so real time ends a lease, whatever the cache's clock does. The entry's time to live only
/// keeps it from staying for ever.
struct Lease: ~Copyable {
  enum State {
    case none, awaited, held, over
  }

  private(set) var state = State.none
  /// Of the entry; nil: there is none that this session knows.
  private var key: Text?
  /// The entry's version: another session's, which is known since `since`; or, if held, this one's.
  private var version: UInt64 = 0
  /// CLOCK_MONOTONIC.
  private var since: Int64 = 0
  private var pause: Int64 = 0
  /// When the lease is to be looked at, or renewed; CLOCK_MONOTONIC.
  private(set) var nextLook = Int64.max

  private static var shortestPause: Int64 { 2_000_000 }
  private static var longestPause: Int64 { 50_000_000 }

  enum Answer {
    /// The caller makes the request.
    case lead
    /// Another session makes it.
    case wait
    /// The caller looks into the cache again: the lease is its own now, or the other session has
    /// ended its request.
    case look
  }

  /// Takes the lease, or looks whether another session still has it. Where the disk tier does not
  /// answer there are no leases.
  mutating func take(_ cache: HTTPCache, of url: Text, now: Int64) throws(Failure) -> Answer {
    guard cache.term > 0, let disk = cache.disk, state == .none || state == .awaited else {
      return .lead
    }
    if key == nil {
      var text = GrowingArray<UInt8>()
      try text.append("LEASE ")
      try text.append(contentsOf: Bytes(start: url.start, count: url.count))
      key = try Text(Bytes(text.elements))
    }
    guard let key else { return .lead }
    if state == .awaited {
      var info = hutch_entry_info()
      info.struct_size = MemoryLayout<hutch_entry_info>.size
      guard hutch_info(disk, key.start, key.count, &info) == HUTCH_OK else {
        return end(.look)
      }
      if info.version != version { see(info.version, now) }
      if now - since < cache.term { return wait(cache, now) }
    }
    let (status, found) = put(cache, disk, key, after: state == .awaited ? version : nil)
    switch Int(status) {
    case HUTCH_OK:
      state = .held
      version = found
      nextLook = now + cache.term / 3
      return .look
    case HUTCH_EXISTS, HUTCH_CONFLICT:
      state = .awaited
      see(found, now)
      return wait(cache, now)
    case HUTCH_NOT_FOUND: return end(.look)
    default: return end(.lead)
    }
  }

  private mutating func see(_ found: UInt64, _ now: Int64) {
    version = found
    since = now
    pause = Lease.shortestPause
  }

  private mutating func wait(_ cache: HTTPCache, _ now: Int64) -> Answer {
    nextLook = min(now + pause, since + cache.term)
    pause = min(pause * 2, Lease.longestPause)
    return .wait
  }

  private mutating func end(_ answer: Answer) -> Answer {
    state = .over
    nextLook = Int64.max
    return answer
  }

  /// Writes the entry: if it is absent, or if it has this version.
  private func put(
    _ cache: HTTPCache, _ disk: OpaquePointer, _ key: Text, after version: UInt64?
  ) -> (status: hutch_status, version: UInt64) {
    var options = hutch_put_options()
    options.struct_size = MemoryLayout<hutch_put_options>.size
    options.time_to_live = Deadline.sum(cache.term, 60_000_000_000)
    var result = hutch_put_result()
    result.struct_size = MemoryLayout<hutch_put_result>.size
    let status =
      version.map {
        hutch_compare_and_swap(disk, key.start, key.count, $0, nil, 0, &options, &result)
      } ?? hutch_add(disk, key.start, key.count, nil, 0, &options, &result)
    return (status, result.version)
  }

  /// For a lease that is held: it has a new version.
  mutating func renew(_ cache: HTTPCache, now: Int64) {
    guard state == .held, let key, let disk = cache.disk else { return }
    let (status, found) = put(cache, disk, key, after: version)
    if status == HUTCH_OK {
      version = found
      nextLook = now + cache.term / 3
    } else {
      // Another session has taken it over. This one's request goes on.
      _ = end(.lead)
    }
  }

  /// The request has ended, or does not run.
  mutating func release(_ cache: HTTPCache) {
    if state == .held, let key, let disk = cache.disk {
      var info = hutch_entry_info()
      info.struct_size = MemoryLayout<hutch_entry_info>.size
      if hutch_info(disk, key.start, key.count, &info) == HUTCH_OK, info.version == version {
        _ = hutch_remove(disk, key.start, key.count)
      }
    }
    _ = end(.lead)
  }
}
