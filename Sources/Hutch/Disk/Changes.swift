/// What a transaction has done beside its writes, and what is owed once it is committed.
final class Changes {
  /// Content files that lost their rows.
  private(set) var files = GrowingArray<DeadFile>()
  /// Entries that went without being asked to, with their versions.
  private var dropped = KeyList()
  var evictions: UInt64 = 0
  var expirations: UInt64 = 0
  /// Whether anything was changed at all.
  var isAny = false

  enum Cause {
    case evicted, expired, damaged
  }

  func lose(_ file: ContentName, size: Int) throws(Failure) {
    try files.append(DeadFile(name: file, size: Int64(Charge.rounded(size))))
  }

  func drop(_ key: Bytes, _ version: UInt64, _ cause: Cause) throws(Failure) {
    switch cause {
    case .evicted: evictions += 1
    case .expired: expirations += 1
    case .damaged: break
    }
    try dropped.append(key, Int64(bitPattern: version))
  }

  var hasDropped: Bool { !dropped.isEmpty }

  func forEachDropped(_ body: (Bytes, UInt64) -> Void) {
    dropped.forEach { key, version in body(key, UInt64(bitPattern: version)) }
  }
}
