import CSystem

/// The result of a look for one of several keys.
struct FoundBlock: BitwiseCopyable {
  var hash: UInt64 = 0
  /// A reference, which the caller owns. Nil: there is no entry.
  var block: OpaquePointer?
}

/// So many keys are looked for at once: as many misses as a processor has under way.
typealias FoundBlocks = InlineArray<16, FoundBlock>

extension MemoryTier {
  /// As `get` of each of the keys: references to their entries' blocks. The memory of all is asked
  /// for before that of the first is read.
  func getMany(
    _ keys: ManyBytes, _ range: Range<Int>, at moment: Moment, _ found: inout FoundBlocks
  ) {
    withUnsafeMutablePointer(to: &found) {
      let found = UnsafeMutableRawPointer($0).assumingMemoryBound(to: FoundBlock.self)
      getMany(
        keys, range, at: moment, UnsafeMutableBufferPointer(start: found, count: range.count))
    }
  }

  @_optimize(speed)
  private func getMany(
    _ keys: ManyBytes, _ range: Range<Int>, at moment: Moment,
    _ found: UnsafeMutableBufferPointer<FoundBlock>
  ) {
    for i in 0..<found.count { found[i].hash = hashAtOnce(keys[range.lowerBound &+ i]) }
    fetch(found)
    let path = front
    for i in 0..<found.count {
      let key = keys[range.lowerBound &+ i]
      if path.isOpen {
        let outcome = path.pinAnyhow(
          key.baseAddress.unsafelyUnwrapped, key.count, found[i].hash, &found[i].block)
        if outcome == .done || outcome == .absent { continue }
      }
      if let block = get(key, found[i].hash, at: moment) {
        found[i].block = OpaquePointer(block.leak().raw)
      }
    }
  }
}

extension HitPath {
  /// As `pin`, of a key of any size, whose hash is known. One copy of the path for all such reads.
  @inline(never) @_optimize(speed)
  func pinAnyhow(
    _ key: UnsafeRawPointer, _ keySize: Int, _ hash: UInt64,
    _ out: UnsafeMutablePointer<OpaquePointer?>
  ) -> Outcome {
    find(key, keySize, hash, .any, isShared: true, { pin($0, out) }) {
      pinSlowly(key, keySize, $0, out)
    }
  }
}
