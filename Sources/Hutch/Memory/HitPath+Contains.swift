/// The short path of a question whether there is an entry.
extension HitPath {
  /// Whether there is an entry of a key of 4 to 16 bytes, where `isStraight` holds; no access.
  /// `unusual`: another path has to look, and no lock is held.
  @inline(__always)
  func containsStraight(_ key: UnsafeRawPointer, _ keySize: Int) -> Outcome {
    let (lock, localHash) = self.lock(smallHash(key, keySize))
    guard _fastPath(lock.takeAtOnce()) else { return .unusual }
    var outcome = Outcome.unusual
    if let route = lock.shard.pointee.entries.table.route(localHash) {
      switch lock.shard.pointee.entries.table.nearGuess(route) {
      case .place(let place):
        let word = place.word
        if _fastPath(!word.isTimed), let block = word.blockIfAny,
          _fastPath(block.keySize == keySize),
          _fastPath(block.hasKeyBytes(key, keySize, .small, block.shape))
        {
          outcome = .done
        }
      case .none: if isAll && isRight(lock) { outcome = .absent }
      case .later: break
      }
    }
    lock.unlock()
    return outcome
  }

  /// Whether there is an entry; no access.
  @inline(__always)
  func contains(_ key: UnsafeRawPointer, _ keySize: Int, _ kind: KeySize) -> Outcome {
    find(key, keySize, kind, isAccess: false, { _ in true }) {
      containsSlowly(key, keySize, $0)
    }
  }

  /// As `copyAnyhow`.
  @inline(never) @_optimize(speed)
  func containsAnyhow(_ key: UnsafeRawPointer, _ keySize: Int) -> Outcome {
    contains(key, keySize, .any)
  }

  @inline(never)
  private func containsSlowly(_ key: UnsafeRawPointer, _ keySize: Int, _ spot: Spot) -> Outcome {
    findSlowly(key, keySize, spot, isAccess: false) { _ in true }
  }
}
