import Synchronization

/// Many reads at once. Beginning and ending a read transaction is half the work of reading a
/// small row, so a slice of keys shares one.
extension DiskTier {
  /// No more: a checkpoint waits for the oldest reader. One bit each.
  private static let keysInSlice = 64
  private static let bytesInSlice = 256 << 10

  func get(
    _ count: Int, at moment: Moment, key: (Int) -> (Bytes, UInt64),
    found: (Int, consuming Block?, Failure?) -> Void
  ) {
    var next = 0
    var slice = ReadSlice()
    while next < count {
      // A key that the slice could not read is read by itself, and fails by itself.
      try? read(next, min(DiskTier.keysInSlice, count - next), at: moment, key, into: &slice)
      let end = max(next + 1, next + slice.results.count)
      while next < end {
        switch slice.takeFirst() {
        case .block(let block):
          counters.countHit()
          accesses.note(block.unowned.key, key(next).1, at: moment.time)
          found(next, block, nil)
        case .none:
          counters.countMiss()
          found(next, nil, nil)
        case .unknown:
          do throws(Failure) {
            let (key, hash) = key(next)
            found(next, try get(key, hash, at: moment, isAccess: true), nil)
          } catch {
            found(next, nil, error)
          }
        }
        next += 1
      }
      slice.removeAll()
    }
  }

  /// Reads values in rows, and no more than fit a slice. Entries that are queued, barred, in a file
  /// or damaged are left to `get`.
  private func read(
    _ start: Int, _ count: Int, at moment: Moment, _ key: (Int) -> (Bytes, UInt64),
    into slice: inout ReadSlice
  ) throws(Failure) {
    guard isUp, committer.isSameManifest else { return }
    let filter = RowFilter(self, at: moment)
    // The queue first, then the rows: a write leaves it when its row is committed.
    var queued: UInt64 = 0
    if queue.isOverlaid {
      for i in 0..<count {
        let (key, hash) = key(start + i)
        if queue.concerns(key, hash) { queued |= 1 << UInt64(i) }
      }
    }
    var bytes = 0
    try withReader { (reader) throws(Failure) in
      try slice.results.reserve(count)
      try reader.together { () throws(Failure) in
        for i in 0..<count where bytes < DiskTier.bytesInSlice {
          if queued >> UInt64(i) & 1 != 0 {
            try slice.results.append(.unknown)
            continue
          }
          let (key, _) = key(start + i)
          var isVisible = false
          var entry = FoundEntry()
          let isThere = try reader.find(key, into: &entry) { (row) throws(Failure) in
            isVisible =
              row.file == nil && self.options.knows(row.record.codec) && filter.shows(row, key)
            return isVisible
          }
          guard isThere else {
            try slice.results.append(.absent)
            continue
          }
          if isVisible, let found = entry.block.take(),
            isRight(Bytes(found.unowned.value), entry.row)
          {
            bytes += found.unowned.size
            try slice.results.append(.block(found.leak().raw))
          } else {
            try slice.results.append(.unknown)
          }
        }
      }
    }
  }
}

/// The results of one read transaction, in the order of the keys.
private struct ReadSlice: ~Copyable {
  enum Result {
    case unknown
    case absent
    /// A reference.
    case block(UnsafeMutableRawPointer)
  }

  enum Taken: ~Copyable {
    case unknown
    case none
    case block(Block)
  }

  var results = GrowingArray<Result>()
  private var taken = 0

  init() {}

  deinit { removeRest() }

  mutating func takeFirst() -> Taken {
    guard taken < results.count else { return .unknown }
    taken += 1
    switch results[taken - 1] {
    case .unknown: return .unknown
    case .absent: return .none
    case .block(let pointer): return .block(Block(owning: UnownedBlock(pointer)))
    }
  }

  private func removeRest() {
    for i in taken..<results.count {
      if case .block(let pointer) = results[i] { UnownedBlock(pointer).release() }
    }
  }

  mutating func removeAll() {
    removeRest()
    results.removeAll()
    taken = 0
  }
}
