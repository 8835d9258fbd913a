import Synchronization

/// Reads, which take no lock. Each compares the value with the entry's check, whatever the options
/// say.
extension LogStorage {
  func get(
    _ key: Bytes, _ hash: UInt64, at moment: Moment, isAccess: Bool
  ) throws(Failure) -> Block? {
    guard let store = live, !isBarred(key, hash) else { return missed(isAccess) }
    return try store.get(key, own(hash, key, in: store), at: moment, isAccess: isAccess)
  }

  func copy(
    _ key: Bytes, _ hash: UInt64, at moment: Moment, _ part: Look.Part,
    into buffer: UnsafeMutableRawBufferPointer
  ) -> ValueCopy {
    guard let store = uncounted, !isBarred(key, hash) else {
      counters.countMiss()
      return .absent
    }
    return store._withUnsafeGuaranteedRef {
      $0.copy(key, own(hash, key, in: $0), at: moment, part, into: buffer)
    }
  }

  private func missed(_ isAccess: Bool) -> Block? {
    if isAccess { counters.countMiss() }
    return nil
  }

  /// Reads one entry after the other, and prefetches the lines of the index for those that follow.
  func get(
    _ count: Int, at moment: Moment, key: (Int) -> (Bytes, UInt64),
    found: (Int, consuming Block?, Failure?) -> Void
  ) {
    let ahead = 8
    for index in 0..<count {
      do throws(Failure) {
        if let store = live, index + ahead < count {
          let (next, hash) = key(index + ahead)
          store.prefetch(own(hash, next, in: store))
        }
        let (key, hash) = key(index)
        found(index, try get(key, hash, at: moment, isAccess: true), nil)
      } catch {
        found(index, nil, error)
      }
    }
  }

  func info(_ key: Bytes, _ hash: UInt64, at moment: Moment) throws(Failure) -> Record? {
    guard let store = uncounted, !isBarred(key, hash) else { return nil }
    return store._withUnsafeGuaranteedRef {
      $0.info(key, own(hash, key, in: $0), at: moment)
    }
  }

  func tag(
    of key: Bytes, _ hash: UInt64, at moment: Moment, visit: (UInt64, Bytes) -> Void
  ) {
    guard let store = uncounted, !isBarred(key, hash) else { return }
    store._withUnsafeGuaranteedRef {
      $0.tag(of: key, own(hash, key, in: $0), at: moment, visit: visit)
    }
  }

  func noteDamage(_ key: Bytes, _ hash: UInt64, _ version: UInt64) {
    if let store = live { store.noteDamage(key, own(hash, key, in: store), version) }
  }

  /// Notes that the entry was read in a tier above: the cleaner appends it once more.
  func noteAccess(_ key: Bytes, _ hash: UInt64, at time: Int64) {
    guard let store = live else { return }
    // In the child of a fork memory may come here before the first call that uses the store.
    if !store.isReading { store.beginReading() }
    guard let match = store.find(key, own(hash, key, in: store)) else { return }
    store.noteUse(match, at: time)
  }

  var isOrdered: Bool { false }
}
