import CSystem

/// A put whose value comes in pieces. A small value is gathered in memory and ends as an ordinary
/// put; else the pieces go into a content file, which the commit gives a row.
///
/// Nothing of it is seen before the commit, which draws the version. One thread at a time uses
/// a writer.
final class Writer {
  /// Up to so many bytes are gathered before they are written.
  private static let room = 64 << 10

  let handle: Handle
  private let cache: Cache
  /// See Process.forks.
  let forks = Process.forks
  /// Where the value goes.
  private let target: WritePolicy
  /// Key and extended data, without a value.
  private let head: Block
  private var spec: Cache.PutSpec
  /// The part that does not fit into memory; nil: none yet, or the writer has ended.
  private var file: PendingFile?
  private var gathered = GrowingArray<UInt8>()
  /// All that was appended.
  private var size = 0
  private var state = State.open

  private enum State {
    case open
    /// Nothing more can be appended, and it cannot be committed.
    case failed(Failure)
    case ended
  }

  /// Steps that may fail are taken here: where the initialiser of a class throws, Embedded Swift
  /// (6.3) does not free the instance.
  static func begin(
    _ handle: Handle, _ key: Bytes, expected: Int, _ spec: Cache.PutSpec
  ) throws(Failure) -> Writer {
    let cache = handle.cache
    let target = try cache.target(of: spec.writePolicy, in: handle.scope).ofFile
    guard try cache.isTakenSomewhere(key, spec, size: expected, in: target.tiers) else {
      throw Writer.tooLarge
    }
    return Writer(
      handle, target,
      try Block.copying(
        key: key, value: Bytes(start: nil, count: 0), extended: spec.extended, record: Record()),
      spec)
  }

  private init(
    _ handle: Handle, _ target: WritePolicy, _ head: consuming Block, _ spec: Cache.PutSpec
  ) {
    self.handle = handle
    cache = handle.cache
    self.target = target
    self.head = head
    self.spec = spec
    self.spec.extended = self.head.unowned.extended
  }

  private static var ended: Failure { Failure(.invalidArgument, "the writer has ended") }
  private static var tooLarge: Failure {
    Failure(.tooLarge, "the value is larger than any tier takes")
  }

  private func discard() {
    gathered = GrowingArray<UInt8>()
    file = nil
  }

  private func checkOpen() throws(Failure) {
    switch state {
    case .open: break
    case .failed(let failure): throw failure
    case .ended: throw Writer.ended
    }
  }

  func checkNotEnded() throws(Failure) {
    if case .ended = state { throw Writer.ended }
  }

  /// Where pieces go that do not fit into memory; nil: nowhere, all of it is gathered.
  private var files: (any FileStorage)? {
    target == .memory ? nil : cache.storage?.files
  }

  func append(_ bytes: Bytes) throws(Failure) {
    try checkOpen()
    do throws(Failure) {
      let (sum, overflow) = size.addingReportingOverflow(bytes.count)
      guard !overflow, sum <= Record.largestSize,
        try cache.isTakenSomewhere(head.unowned.key, spec, size: sum, in: target.tiers)
      else { throw Writer.tooLarge }
      if files == nil || gathered.count + bytes.count <= Writer.room {
        try gathered.append(contentsOf: bytes)
      } else {
        try inFile { (files) throws(Failure) in
          try flush(to: files)
          if bytes.count > Writer.room {
            try file!.append(bytes, in: files)
          } else {
            try gathered.append(contentsOf: bytes)
          }
        }
      }
      size = sum
    } catch {
      // Closed: the next call is told so anyhow.
      state = .failed(error)
      discard()
      throw error
    }
  }

  private func inFile(_ body: (any FileStorage) throws(Failure) -> Void) throws(Failure) {
    try cache.withStorage { (storage) throws(Failure) in
      if let files = storage.files { try body(files) }
    }
  }

  private func flush(to files: any FileStorage) throws(Failure) {
    if file == nil { file = try PendingFile.begin(spec.suffix ?? FileSuffix(), in: files) }
    try file!.append(Bytes(gathered.elements), in: files)
    gathered.removeAll()
  }

  func commit() throws(Failure) -> Cache.PutResult {
    try checkOpen()
    state = .ended
    defer { discard() }
    let scope = handle.scope
    let key = head.unowned.key
    let hash = cache.memory.hash(key)
    let moment = cache.clock.current
    guard let files, cache.values.keepsInFile(size, files) else {
      return try cache.put(
        try whole(at: moment), hash, at: moment, if: .always, in: scope,
        storing: target, suffix: spec.suffix)
    }
    return try cache.withStorage { (storage) throws(Failure) in
      try flush(to: files)
      try file!.giveName(in: files)
      let form = ValueForm(suffix: spec.suffix)
      form.file = file
      file = nil
      return try cache.put(
        key, hash, spec, valueIn: form, .removed, at: moment, in: scope, storing: target,
        to: storage)
    }
  }

  /// The value in memory, from wherever its pieces are.
  private func whole(at moment: Moment) throws(Failure) -> Block {
    try cache.block(head.unowned.key, spec, size: size, at: moment) { (value) throws(Failure) in
      let written = file?.size ?? 0
      if let file, written > 0 {
        try file.read(into: UnsafeMutableRawBufferPointer(rebasing: value[0..<written]))
      }
      if gathered.count > 0 {
        memcpy(value.baseAddress! + written, gathered.elements.baseAddress!, gathered.count)
      }
    }
  }

  func abort() throws(Failure) {
    try checkNotEnded()
    state = .ended
    discard()
  }
}
