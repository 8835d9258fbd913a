import Synchronization

/// Host objects: pointers that the memory tier keeps under keys of their own, and whose release
/// functions are called when the last reference to them is released.
extension Cache {
  /// Keeps an object in place of the one that was there. If that fails it is the caller's to
  /// release still.
  func putObject(
    _ key: Bytes, _ object: UnsafeMutableRawPointer?, _ release: HostObject.Release?,
    _ spec: PutSpec
  ) throws(Failure) {
    // The thread that releases objects starts before there is an object.
    if !settings.drainsReleases { try startMaintenance() }
    let moment = clock.moment()
    let block = try HostObject.block(
      key: key, tag: spec.extended.tag, record: spec.record(at: moment), object, release,
      releases)
    let entry = block.unowned
    if entry.tagSize > 0 { hasTaggedObjects.store(true, ordering: .relaxed) }
    let failure: Failure
    defer { _ = helpWriteBack() }
    do throws(Failure) {
      let put = try memory.put(
        entry.retained(), memory.hash(ofObject: key), at: moment, isBacked: false)
      if put.outcome == .stored { return }
      failure = Failure(.tooLarge, "the object's cost is larger than the memory tier takes")
    } catch {
      failure = error
    }
    // No other reference exists.
    HostObject(block: entry).disown()
    throw failure
  }

  /// The object, counted as an access, as a reference to its block; nil if there is none.
  func getObject(_ key: Bytes) -> Block? {
    memory.get(key, memory.hash(ofObject: key), at: clock.moment())
  }

  /// False: there is none.
  func removeObject(_ key: Bytes) -> Bool {
    memory.remove(key, memory.hash(ofObject: key), at: clock.moment()) != nil
  }

  /// Releases objects without a reference. Returns how many.
  @discardableResult
  func releaseObjects(most: UInt64) -> UInt64 {
    releases.drain(most: most)
  }

  /// The cache is shut: a thread that lets an object go from here on releases it.
  func endReleases() { releases.close() }
}
