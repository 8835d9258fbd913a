/// Where the handles of a cache find it. The child of a fork puts a new cache here, over the same
/// tiers.
final class CachePlace {
  /// A counted reference, which a look does not count again. Changes in the child of a fork alone,
  /// before the child has a second thread.
  private(set) var unretained: Unmanaged<Cache>

  init(_ cache: Cache) {
    unretained = .passRetained(cache)
    cache.place = .passUnretained(self)
  }

  deinit { unretained.release() }

  @inline(__always) var cache: Cache { unretained.takeUnretainedValue() }

  /// In the child of a fork. The cache that was here stays as it is, and is not freed.
  func replace(with cache: Cache) {
    unretained = .passRetained(cache)
    cache.place = .passUnretained(self)
  }
}
