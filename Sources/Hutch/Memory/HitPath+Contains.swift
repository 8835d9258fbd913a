/// The short path of a question whether there is an entry.
extension HitPath {
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
