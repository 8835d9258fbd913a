internal import CHutch

/// Copies the entries of a cache into another one, whatever their stores are.
///
/// The walk meets every entry that is there from its beginning to its end, whatever its times are:
/// the clocks of two directories may differ. Each entry is read, and then put, as any caller would
/// do it: neither cache has a lock, or its gate, held for the other, and both go on serving. A key
/// that the target has by then is left out: what is newer there stays.
final class Copying {
  private let source: Handle
  private let target: Handle
  /// Their caches.
  private let from: Cache
  private let to: Cache
  private let policy: WritePolicy

  /// How far it has come.
  private(set) var report = CopyReport()

  /// A store may keep so many accesses until they are written.
  private static let accessesBetweenFlushes: UInt64 = 1024

  private init(_ source: Handle, _ target: Handle, _ policy: WritePolicy) {
    self.source = source
    self.target = target
    from = source.cache
    to = target.cache
    self.policy = policy
  }

  /// Embedded Swift does not free an object whose own initializer fails, hence one that delegates.
  convenience init(from source: Handle, to target: Handle) throws(Failure) {
    guard source.cache !== target.cache else {
      throw Failure(.invalidArgument, "a cache is not copied into itself")
    }
    // What is hot in the target's memory stays there.
    let hasDisk = target.cache.storage != nil && target.scope != .memory
    self.init(
      source, target,
      try target.cache.target(of: hasDisk ? .disk : .standard, in: target.scope))
  }

  func run() throws(Failure) {
    let walk = WholeWalk(source, goesFar: true)
    while let key = try walk.next() {
      try source.check()
      try target.check()
      if let block = try from.peek(key, in: source.scope) {
        try copy(block.unowned)
      } else {
        // It has gone since the step.
        try checkSource()
      }
    }
    try checkSource()
    try flush()
  }

  /// A walk, and a look, find no entries in a store that is out of service, and do not fail.
  private func checkSource() throws(Failure) {
    if source.scope == .memory || from.storage == nil { return }
    try from.withStorage { (storage) throws(Failure) in _ = try storage.occupancy() }
  }

  @inline(never)
  private func copy(_ entry: UnownedBlock) throws(Failure) {
    let hash = to.memory.hash(entry.key)
    var record = entry.record
    let accessed = try from.info(entry.key, in: source.scope)?.record.accessed ?? 0
    record.version = 0
    // An entry with a time to idle would be expired between its put and the note of its access.
    try note(accessed, entry.key, hash, record)
    let block = try Block.copying(
      key: entry.key, value: Bytes(entry.value), extended: entry.extended, record: record,
      wantsChecksum: to.storage != nil)
    let result = try to.put(
      block, hash, at: to.clock.current, if: .absent, in: target.scope, storing: policy,
      suffix: suffix(of: entry))
    switch result.status {
    case .done, .partial:
      report.copied += 1
      report.bytes += UInt64(entry.size)
      try note(accessed, entry.key, hash, record)
      if report.copied % Copying.accessesBetweenFlushes == 0 { try flush() }
    case .exists: report.existing += 1
    case .tooLarge: report.refused += 1
    default:
      throw result.failure ?? Failure(result.status, "the target does not store the entry")
    }
  }

  private func note(
    _ accessed: Int64, _ key: Bytes, _ hash: UInt64, _ record: Record
  ) throws(Failure) {
    guard accessed > record.created, policy == .disk else { return }
    try to.withStorage { (storage) throws(Failure) in
      storage.noteAccess(key, hash, at: accessed)
    }
  }

  private func flush() throws(Failure) {
    guard policy == .disk else { return }
    try to.withStorage { (storage) throws(Failure) in try storage.flush() }
  }

  /// The end of the name of the value's file, if it has a file.
  private func suffix(of entry: UnownedBlock) -> FileSuffix? {
    guard source.scope != .memory, let files = from.storage?.files,
      from.values.keepsInFile(entry.size, files)
    else { return nil }
    var suffix: FileSuffix?
    try? from.path(of: entry.key, in: source.scope) { (path) throws(Failure) in
      let name = path.lastIndex(of: 0x2F).map { Bytes(rebasing: path[($0 + 1)...]) } ?? path
      suffix = ContentName(name)?.suffix
    }
    return suffix?.count == 0 ? nil : suffix
  }
}
