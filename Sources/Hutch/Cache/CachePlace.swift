/// Where the handles of a cache find it. The child of a fork puts a new cache here, over the same
/// tiers.
final class CachePlace {
  /// A counted reference, which a look does not count again: the cache lives as long as its place.
  /// Changes in the child of a fork alone, before the child has a second thread.
  private(set) unowned(unsafe) var cache: Cache

  init(_ cache: Cache) {
    self.cache = cache
    _ = unretained.retain()
    cache.place = .passUnretained(self)
  }

  deinit { unretained.release() }

  @inline(__always) var unretained: Unmanaged<Cache> { .passUnretained(cache) }

  /// In the child of a fork. The cache that was here stays as it is, and is not freed.
  func replace(with cache: Cache) {
    self.cache = cache
    _ = unretained.retain()
    cache.place = .passUnretained(self)
  }
}
