import CSystem

/// Values as files: puts of files, a value's path and descriptor, holds.
extension Cache {
  /// The fate of the file that a put is given.
  enum FileUse: UInt32 {
    case copy = 1
    /// It goes once the entry is committed.
    case move = 2
    /// It and the entry share their bytes.
    case link = 3
  }

  /// Whether the memory tier would take an entry.
  func memoryTakes(_ key: Bytes, _ spec: PutSpec, size: Int) -> Bool {
    if spec.cost == Record.noCost { return true }
    let charge =
      spec.cost != 0 ? spec.cost : MemoryTier.charge(key.count, size, spec.extended.count)
    return charge <= parts.limitsLock.withLock { memoryLimits.largestCharge }
  }

  // MARK: putting a file

  func putFile(
    _ key: Bytes, _ path: Files.Path, _ use: FileUse, _ spec: PutSpec, in scope: Tiers,
    by late: LateWrite? = nil
  ) throws(Failure) -> PutResult {
    let source = try SourceFile(path)
    let target = try target(of: spec.writePolicy, in: scope).ofFile
    var result: PutResult
    if target != .memory {
      result = try withStorage { (storage) throws(Failure) in
        try put(
          source, path, use, key, spec, in: scope, storing: target, by: late, to: storage)
      }
    } else {
      result = try putWhole(source, key, spec, in: scope, storing: target, by: late)
    }
    let isStored =
      (target == .memory ? result.memory : result.disk) == .stored
    if use == .move, isStored, let failure = source.remove(path) {
      result.status = failure.status
      result.failure = failure
    }
    return result
  }

  private func put(
    _ source: borrowing SourceFile, _ path: Files.Path, _ use: FileUse, _ key: Bytes,
    _ spec: PutSpec, in scope: Tiers, storing target: WritePolicy, by late: LateWrite?,
    to storage: any Storage
  ) throws(Failure) -> PutResult {
    let size = source.size
    guard let files = storage.files, values.keepsInFile(size, files) else {
      return try putWhole(source, key, spec, in: scope, storing: target, by: late)
    }
    let goesIntoMemory = target != .disk && memoryTakes(key, spec, size: size)
    let isTaken = takes(files, key, spec, size: size)
    // With the value in memory anyhow, a copy is an ordinary put.
    if goesIntoMemory && (use == .copy || !isTaken) {
      return try putWhole(source, key, spec, in: scope, storing: target, by: late)
    }
    let form = ValueForm(suffix: spec.suffix)
    let moment = clock.current
    let block: Block
    var checksum: UInt64 = 0
    if goesIntoMemory {
      block = try read(source, key, spec, at: moment)
      checksum = block.unowned.checksum
    } else {
      block = try spec.block(key, at: moment)
    }
    do throws(Failure) {
      if isTaken {
        if use != .copy && !goesIntoMemory { checksum = try source.checksum() }
        if use != .copy {
          try storing(form) { () throws(Failure) in
            try PendingFile.link(
              path, source.number, size: size, checksum: checksum, spec.suffix ?? FileSuffix(),
              in: files)
          }
        }
        // The store copies the block's bytes from there.
        if form.file == nil && !goesIntoMemory { try copy(source, to: form, files) }
      } else {
        form.refusal = .tooLarge
      }
    } catch {
      // A fault of the file that was given is told, and changes nothing.
      guard form.failure != nil else { throw error }
    }
    return try put(
      block.unowned, memory.hash(key),
      as: goesIntoMemory
        ? WritePlan(target, form) : WritePlan(target, valueIn: form, .tooLarge),
      at: moment, in: scope, by: late, to: storage)
  }

  /// From this size on a put without a block of the value costs less.
  static let sizeWithoutBlock = 4096

  /// A put that goes to the disk tier alone. A value that is kept in a file goes there straight
  /// from the caller's bytes, and so does another one if the store copies it at once. Nil: it is an
  /// ordinary put.
  @inline(never)
  func putWithoutBlock(
    _ key: Bytes, _ value: Bytes, _ spec: PutSpec, _ hash: UInt64, at moment: Moment
  ) throws(Failure) -> PutResult? {
    guard spec.writePolicy == .standard, values.codec == nil else { return nil }
    return try withStorage { (storage) throws(Failure) in
      guard storage.takesBytes || storage.files?.keepsInFile(value.count) ?? false else {
        return nil
      }
      let form = ValueForm(suffix: spec.suffix)
      form.bytes = value
      return try put(
        key, hash, spec, valueIn: form, .removed, at: moment, in: .disk, storing: .disk,
        to: storage)
    }
  }

  /// The put of an entry whose block has no value: `form` has it, or says why no tier takes it.
  /// `outcome`: memory's.
  func put(
    _ key: Bytes, _ hash: UInt64, _ spec: PutSpec, valueIn form: ValueForm,
    _ outcome: TierOutcome, at moment: Moment, in scope: Tiers, storing target: WritePolicy,
    by late: LateWrite? = nil, to storage: any Storage
  ) throws(Failure) -> PutResult {
    let block = try spec.block(key, at: moment)
    return try put(
      block.unowned, hash, as: WritePlan(target, valueIn: form, outcome), at: moment, in: scope,
      by: late, to: storage)
  }

  /// An ordinary put of a file's bytes, or its refusal where no tier would take them.
  private func putWhole(
    _ source: borrowing SourceFile, _ key: Bytes, _ spec: PutSpec, in scope: Tiers,
    storing target: WritePolicy, by late: LateWrite?
  ) throws(Failure) -> PutResult {
    let moment = clock.current
    let hash = memory.hash(key)
    if try !isTakenSomewhere(key, spec, size: source.size, in: target.tiers) {
      return try refuse(key, spec, hash, at: moment, in: scope, storing: target, by: late)
    }
    return try put(
      try read(source, key, spec, at: moment), hash, at: moment, if: .always, in: scope,
      storing: target, suffix: spec.suffix, by: late)
  }

  private func read(
    _ source: borrowing SourceFile, _ key: Bytes, _ spec: PutSpec, at moment: Moment
  ) throws(Failure) -> Block {
    try block(key, spec, size: source.size, at: moment) { (value) throws(Failure) in
      try source.read(into: value)
    }
  }

  /// The block of a put whose value, of this size, `fill` writes.
  @inline(never)
  func block(
    _ key: Bytes, _ spec: PutSpec, size: Int, at moment: Moment,
    _ fill: (UnsafeMutableRawBufferPointer) throws(Failure) -> Void
  ) throws(Failure) -> Block {
    var record = spec.record(at: moment)
    record.size = size
    record.setSizes(of: spec.extended)
    record.checksum = storage == nil ? 0 : 1
    let block = try Block.allocate(key: key, record: record)
    let made = block.unowned
    spec.extended.copy(to: made.extendedData)
    try fill(made.value)
    if storage != nil { made.setChecksum() }
    return block
  }

  /// Where it fails for the store's sake, `form` has the failure.
  private func copy(
    _ source: borrowing SourceFile, to form: ValueForm, _ files: any FileStorage
  ) throws(Failure) {
    try storing(form) { () throws(Failure) in
      try PendingFile.begin(form.suffix ?? FileSuffix(), in: files)
    }
    guard let file = form.file else { return }
    try source.forEachPiece { (piece) throws(Failure) in
      try storing(form) { () throws(Failure) in
        try file.append(piece, in: files)
        return nil
      }
    }
    try storing(form) { () throws(Failure) in
      try file.giveName(in: files)
      return nil
    }
  }

  /// Runs a step of the store's, whose failure `form` notes, and whose file it has if there is one.
  private func storing(
    _ form: ValueForm, _ body: () throws(Failure) -> PendingFile?
  ) throws(Failure) {
    do throws(Failure) {
      if let file = try body() { form.file = file }
    } catch {
      form.refuse(for: error)
      form.file = nil
      throw error
    }
  }

  /// Whether a tier would take an entry of this size.
  func isTakenSomewhere(
    _ key: Bytes, _ spec: PutSpec, size: Int, in scope: Tiers
  ) throws(Failure) -> Bool {
    if scope != .disk && memoryTakes(key, spec, size: size) { return true }
    guard storage != nil, scope != .memory else { return false }
    return try withStorage { (storage) throws(Failure) in
      // Without files there is no telling beforehand.
      guard let files = storage.files else { return true }
      return takes(files, key, spec, size: size)
    }
  }

  private func takes(
    _ files: any FileStorage, _ key: Bytes, _ spec: PutSpec, size: Int
  ) -> Bool {
    values.isTaken(
      key: key.count, size: size, extended: spec.extended.count, tag: spec.extended.tag.count,
      by: files)
  }

  /// A put that no tier takes: what is there goes.
  func refuse(
    _ key: Bytes, _ spec: PutSpec, _ hash: UInt64, at moment: Moment, in scope: Tiers,
    storing target: WritePolicy, by late: LateWrite? = nil
  ) throws(Failure) -> PutResult {
    guard storage != nil else {
      var isOvertaken = false
      let removed = try removeFromMemory(key, hash, at: moment, by: late, &isOvertaken)
      if isOvertaken { return .superseded }
      memory.noteRefusal(hash, hadEntry: removed != nil)
      var result = PutResult()
      result.version = order.versions.draw()
      result.memory = .tooLarge
      result.setStatus(storageFailure: nil)
      return result
    }
    let form = ValueForm()
    form.refusal = .tooLarge
    return try withStorage { (storage) throws(Failure) in
      try put(
        key, hash, spec, valueIn: form, .tooLarge, at: moment, in: scope, storing: target,
        by: late, to: storage)
    }
  }

  // MARK: a value's file

  /// Calls `body` with the path of the value's file, without the NUL; not if there is no entry.
  func path(
    of key: Bytes, in scope: Tiers, _ body: (Bytes) throws(Failure) -> Void
  ) throws(Failure) {
    let moment = clock.current
    let hash = memory.hash(key)
    try withStorage { (storage) throws(Failure) in
      guard let files = storage.files, scope != .memory else {
        throw Failure(.unsupported, "this tier has no files")
      }
      _ = order.stripes.stableState(Stripes.index(of: hash))
      if !order.staged.isEmpty,
        staged(key, hash, at: moment, isAccess: false, storage) != nil
      {
        throw Failure(.wrongType, "the value has no file of its own")
      }
      _ = try files.path(of: key, hash, at: moment) { (path) throws(Failure) in
        guard let path else {
          throw Failure(
            .wrongType,
            values.codec == nil
              ? "the value has no file of its own"
              : "the value has no file of its own: what a codec makes is not the value")
        }
        try body(path)
      }
    }
  }

  /// A descriptor to read the value by, which the caller closes; nil if there is no entry.
  func descriptor(of key: Bytes, in scope: Tiers) throws(Failure) -> Int32? {
    let moment = clock.current
    if scope != .memory, storage != nil {
      let stripe = Stripes.index(of: memory.hash(key))
      let file = try withStorage { (storage) throws(Failure) in
        // A put that memory shows already is submitted to the store before the store is read.
        _ = order.stripes.stableState(stripe)
        return try storage.files?.open(key, memory.hash(key), at: moment)
      }
      if let file { return file }
    }
    guard let block = try get(key, in: scope) else { return nil }
    return try Files.sealed(Bytes(block.unowned.value))
  }

  // MARK: holds

  /// Where there are no files, none goes.
  func holdFiles() throws(Failure) {
    guard storage != nil else { return }
    try withStorage { (storage) throws(Failure) in storage.files?.hold() }
  }

  /// Nothing is owed once the cache is shut.
  func releaseFiles() { try? withStorage { (storage) throws(Failure) in storage.files?.release() } }
}

/// A file that a put is given.
struct SourceFile: ~Copyable {
  private let file: Descriptor
  let size: Int
  private let identity: FileIdentity
  private static let piece = 256 << 10

  init(_ path: Files.Path) throws(Failure) {
    guard let number = Files.open(path, O_RDONLY | O_NONBLOCK) else {
      throw .system("cannot open the file")
    }
    let file = Descriptor(owning: number)
    guard let status = Files.status(of: number) else { throw .system("cannot look at the file") }
    guard status.isRegular else {
      throw Failure(.invalidArgument, "the path is not a regular file's")
    }
    guard status.size <= Record.largestSize else {
      throw Failure(.tooLarge, "the file is larger than any tier takes")
    }
    self.file = file
    size = status.size
    identity = status.identity
  }

  var number: Int32 { file.number }

  @inline(never)
  private func read(
    _ target: UnsafeMutableRawBufferPointer, at offset: Int
  ) throws(Failure) {
    guard let count = Files.read(number, into: target, at: offset) else {
      throw .system("cannot read the file")
    }
    guard count == target.count else { throw Failure(.io, "the file has become shorter") }
  }

  func read(into target: UnsafeMutableRawBufferPointer) throws(Failure) {
    try read(target, at: 0)
  }

  @inline(never)
  func forEachPiece(_ body: (Bytes) throws(Failure) -> Void) throws(Failure) {
    let room = try Allocation.bytes(SourceFile.piece)
    defer { free(room) }
    var offset = 0
    while offset < size {
      let piece = UnsafeMutableRawBufferPointer(
        start: room, count: min(SourceFile.piece, size - offset))
      try read(piece, at: offset)
      try body(Bytes(piece))
      offset += piece.count
    }
  }

  func checksum() throws(Failure) -> UInt64 {
    var sum = Checksum.Sum()
    try forEachPiece { (piece) throws(Failure) in sum.add(piece) }
    return sum.value
  }

  /// Unlinks the path, if it is this file's still. Nil: done.
  func remove(_ path: Files.Path) -> Failure? {
    if let status = Files.status(path, at: AT_FDCWD) {
      // A symbolic link is what was given, too.
      if status.isRegular && status.identity != identity { return nil }
      if Files.unlink(path, at: AT_FDCWD) { return nil }
    } else if hutch_errno() == ENOENT {
      return nil
    }
    return Failure.system("the entry is stored, but the file cannot be removed").with(.io)
  }
}
