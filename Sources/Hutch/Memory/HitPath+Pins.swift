/// The short path of a read that returns a reference to the entry's block.
extension HitPath {
  /// Makes a reference.
  @inline(__always)
  func pin(
    _ key: UnsafeRawPointer, _ keySize: Int, _ kind: KeySize,
    _ out: UnsafeMutablePointer<OpaquePointer?>
  ) -> Outcome {
    find(key, keySize, kind, { pin($0, out) }) {
      pinSlowly(key, keySize, $0, out)
    }
  }

  @inline(never)
  @_optimize(speed)
  func pinSlowly(
    _ key: UnsafeRawPointer, _ keySize: Int, _ spot: Spot,
    _ out: UnsafeMutablePointer<OpaquePointer?>
  ) -> Outcome {
    findSlowly(key, keySize, spot) { pin($0, out) }
  }

  @inline(__always)
  func pin(_ hit: Hit, _ out: UnsafeMutablePointer<OpaquePointer?>) -> Bool {
    note(hit)
    out.pointee = OpaquePointer(hit.block.retained().leak().raw)
    return true
  }

  /// A key of any size, whose hash is known. One copy of the path for all such reads.
  @inline(never) @_optimize(speed)
  func pinAnyhow(
    _ key: UnsafeRawPointer, _ keySize: Int, _ hash: UInt64,
    _ out: UnsafeMutablePointer<OpaquePointer?>
  ) -> Outcome {
    find(key, keySize, hash, .any, { pin($0, out) }) {
      pinSlowly(key, keySize, $0, out)
    }
  }

  /// Of many reads, with a lock held (see `look`): counts the access. The caller makes the
  /// reference before it releases the lock.
  @inline(__always)
  func note(
    _ key: Bytes, _ hash: UInt64, _ way: Way, _ spot: Spot,
    _ out: UnsafeMutablePointer<OpaquePointer?>
  ) -> Outcome {
    let start = key.baseAddress.unsafelyUnwrapped
    return look(
      start, key.count, hash, way.local(hash), .any, spot, keepsLock: true, { note($0, out) },
      search: { noteSlowly(start, key.count, $0, out) })
  }

  @inline(never)
  @_optimize(speed)
  private func noteSlowly(
    _ key: UnsafeRawPointer, _ keySize: Int, _ spot: Spot,
    _ out: UnsafeMutablePointer<OpaquePointer?>
  ) -> Outcome {
    findSlowly(key, keySize, spot, keepsLock: true) { note($0, out) }
  }

  @inline(__always)
  private func note(_ hit: Hit, _ out: UnsafeMutablePointer<OpaquePointer?>) -> Bool {
    note(hit)
    out.pointee = OpaquePointer(hit.block.raw)
    return true
  }
}
