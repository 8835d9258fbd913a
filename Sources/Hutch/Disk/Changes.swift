/// What a transaction has done beside its writes, and what is owed once it is committed.
final class Changes {
  /// Content files that lost their rows.
  private(set) var files = GrowingArray<DeadFile>()
  /// Entries that went without being asked to: with their versions, and in the last two bits the
  /// causes.
  private var dropped = KeyList()
  var evictions: UInt64 = 0
  var expirations: UInt64 = 0
  /// Whether anything was changed at all.
  var isAny = false

  func lose(_ file: ContentName, size: Int) throws(Failure) {
    try files.append(DeadFile(name: file, size: Int64(Charge.rounded(size))))
  }

  func drop(_ key: Bytes, _ version: UInt64, _ cause: DropCause) throws(Failure) {
    switch cause {
    case .evicted: evictions += 1
    case .expired: expirations += 1
    case .damaged, .barred: break
    }
    try note(key, version, cause)
  }

  private func note(_ key: Bytes, _ version: UInt64, _ cause: DropCause) throws(Failure) {
    // A row may have been damaged into a key that no cache above could have asked for.
    guard key.count > 0 && key.count <= Row.longestKey else { return }
    try dropped.append(key, Int64(bitPattern: version << 2 | cause.rawValue))
  }

  /// What another transaction has dropped, and counted, is told with what this one has.
  func tellAlso(_ other: Changes) {
    other.forEachDropped { try? note($0, $1, $2) }
  }

  var hasDropped: Bool { !dropped.isEmpty }

  func forEachDropped(_ body: (Bytes, UInt64, DropCause) -> Void) {
    dropped.forEach { key, number in
      let number = UInt64(bitPattern: number)
      body(key, number >> 2, DropCause(rawValue: number & 3) ?? .evicted)
    }
  }
}
