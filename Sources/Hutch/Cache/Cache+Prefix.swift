/// Removals by what keys begin with.
extension Cache {
  /// So many keys are removed together: other calls come between.
  static let removalsTogether = 128

  /// Removes the entries of all keys that begin with `prefix` from the tiers of the handle's scope.
  /// `removed` is how many there were, also if it fails. All are tried; the first failure is
  /// thrown.
  /// An entry that was there before the call is met wherever it goes meanwhile (see WholeWalk).
  func remove(
    prefix: Bytes, through handle: Handle, removed: inout UInt64
  ) throws(Failure) {
    var failure: Failure?
    // The walk goes on behind the prefix, which may be a key itself.
    var pointers = GrowingArray<UnsafeRawPointer?>()
    var sizes = GrowingArray<Int>()
    try pointers.append(prefix.baseAddress)
    try sizes.append(prefix.count)
    let walk = try WholeWalk(handle, prefix: prefix)
    repeat {
      try handle.check()
      let batch = try remove(
        ManyBytes(
          pointers: UnsafePointer(pointers.elements.baseAddress),
          sizes: UnsafePointer(sizes.elements.baseAddress), count: sizes.count),
        in: handle.scope)
      for item in batch.items.elements where item.status == Status.done.code { removed += 1 }
      if failure == nil { failure = batch.firstFailure }
      pointers.removeAll()
      sizes.removeAll()
      try walk.take(most: Cache.removalsTogether, into: &pointers, &sizes)
    } while sizes.count > 0
    events.deliver()
    secureRemovals(in: handle.scope, &failure)
    if let failure { throw failure }
  }

  /// The end of a removal of all entries of some kind. `failure`: the first one.
  func secureRemovals(in scope: Tiers, _ failure: inout Failure?) {
    guard scope != .memory, storage != nil else { return }
    do throws(Failure) {
      try withStorage { (storage) throws(Failure) in try storage.secureRemovals() }
    } catch {
      if failure == nil { failure = error }
    }
  }
}
