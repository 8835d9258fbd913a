import CSystem
import Synchronization

/// Host objects: pointers, whose release functions are called when the last reference to them is
/// released. Without an object codec the memory tier keeps them under keys of their own. With one,
/// the object is attached to the value that the codec has made of it (Block), so it shares all that
/// becomes of the entry in memory; a value without an object gets one when it is asked for.
extension Cache {
  // MARK: with an object codec

  /// Stores an object as the value of its key. `isTaken`: the object is no longer the caller's.
  func putObject(
    _ key: Bytes, _ object: UnsafeMutableRawPointer?, _ release: Release?,
    _ spec: PutSpec, by codec: ObjectCodec, in scope: Tiers, _ isTaken: inout Bool
  ) throws(Failure) -> PutResult {
    let target = try target(of: spec.writePolicy, in: scope)
    if !settings.drainsReleases { try startMaintenance() }
    let output = try codec.encode(object)
    let moment = clock.current
    let held = try HostObject.block(
      key: key, tag: Bytes(start: nil, count: 0), record: Record(), object, release, releases)
    let block: Block
    do throws(Failure) {
      block = try spec.block(
        key, output.bytes, at: moment, wantsChecksum: storage != nil, attaching: held.unowned)
    } catch {
      HostObject(block: held.unowned).disown()
      throw error
    }
    // From here on other threads may get it.
    isTaken = true
    defer { events.deliver() }
    return try put(
      block, memory.hash(key), at: moment, if: .always, in: scope, storing: target,
      suffix: spec.suffix)
  }

  /// The object of the value, counted as an access, as a reference to its block; nil if there is no
  /// value.
  func getObject(
    _ key: Bytes, by codec: ObjectCodec, in scope: Tiers
  ) throws(Failure) -> Block? {
    guard let block = try get(key, in: scope) else { return nil }
    let entry = block.unowned
    if let object = entry.attached { return object.retained() }
    if !settings.drainsReleases { try startMaintenance() }
    let hash = memory.hash(key)
    return try parts.making.object(of: entry.version, hash) { () throws(Failure) in
      // Another thread may have made it since.
      if scope != .disk, let now = memory.peek(key, hash, at: clock.moment()),
        now.unowned.version == entry.version, let object = now.unowned.attached
      {
        return object.retained()
      }
      let object = try codec.decode(entry)
      let held: Block
      do throws(Failure) {
        held = try HostObject.block(
          key: key, tag: Bytes(start: nil, count: 0), record: Record(), object, codec.releasing,
          releases)
      } catch {
        ThreadState.give(object, back: codec.releasing, of: identity)
        throw error
      }
      if scope != .disk { attach(held.unowned, to: entry, hash, in: scope) }
      return held
    }
  }

  /// The entry in memory has the object from here on, if the entry is current. An entry that memory
  /// has not is brought up, unless the scope is memory.
  private func attach(
    _ object: UnownedBlock, to entry: UnownedBlock, _ hash: UInt64, in scope: Tiers
  ) {
    defer { events.deliver() }
    let moment = clock.current
    guard storage != nil else {
      _ = attachInMemory(object, to: entry, hash, at: moment)
      return
    }
    try? withStorage { (storage) throws(Failure) in
      // A promotion is left out if the stripe is taken; other readers may bring the entry up too.
      for _ in 0..<32 {
        if attachInMemory(object, to: entry, hash, at: moment) || scope == .memory { return }
        let round = beginRound(hash)
        let found = try infoBelow(entry.key, hash, at: moment, storage)
        guard found?.version == entry.version else { return }
        let block = try entry.copied(with: entry.record, attaching: object)
        guard MemoryTier.charge(of: block.unowned) <= memory.largestCharge else { return }
        promote(block.unowned, hash, round, at: moment)
        sched_yield()
      }
    }
  }

  /// Puts a copy of memory's block with the object in its place, unless it has it. False: memory
  /// has no block.
  private func attachInMemory(
    _ object: UnownedBlock, to entry: UnownedBlock, _ hash: UInt64, at moment: Moment
  ) -> Bool {
    let stripe = Stripes.index(of: hash)
    while true {
      guard let now = memory.peek(entry.key, hash, at: moment) else { return false }
      guard now.unowned.version == entry.version, now.unowned.attached?.raw != object.raw,
        let block = try? now.unowned.copied(with: now.unowned.record, attaching: object)
      else { return true }
      order.stripes.lock(stripe)
      defer { order.stripes.unlock(stripe) }
      // A touch may have come between, which leaves the version as it is.
      guard let same = memory.peek(entry.key, hash, at: moment) else { return false }
      if same.unowned.raw != now.unowned.raw { continue }
      block.unowned.setDirty(same.unowned.isDirty)
      _ = try? memory.put(block, hash, at: moment, condition: .version(entry.version))
      return true
    }
  }

  // MARK: without one

  /// Keeps an object in place of the one that was there. If that fails it is the caller's to
  /// release still.
  func putObject(
    _ key: Bytes, _ object: UnsafeMutableRawPointer?, _ release: Release?,
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
