import CSystem
import Synchronization

/// Values as files: those that come in pieces or as files, and those that are wanted as files.
extension DiskTier: FileStorage {
  func takes(key: Int, size: Int, extended: Int, tag: Int) -> Bool {
    guard size <= Record.largestSize else { return false }
    let inFile = keepsInFile(size)
    let charge = Charge.of(
      key: key, value: size, extended: extended, tag: tag, inFile: inFile)
    return takes(charge: charge, stored: size, inFile: inFile)
  }

  // MARK: making

  func filePlace() throws(Failure) -> FilePlace {
    guard let directory = placeIfUp else { throw downFailure }
    return FilePlace(directory: directory, inFlight: content.inFlight)
  }

  func makeRoom(_ bytes: Int) { committer.makeRoom(Int64(bytes)) }

  var syncing: ContentFiles.Syncing {
    switch committer.durability {
    case .process: .nothing
    case .power: .bytes
    case .sync: .name
    }
  }

  // MARK: finding

  func path(
    of key: Bytes, _ hash: UInt64, at moment: Moment, _ body: (Bytes?) throws(Failure) -> Void
  ) throws(Failure) -> Bool {
    guard let place = try locate(key, hash, at: moment) else { return false }
    guard let name = place.name, let directory = place.directory else {
      try body(nil)
      return true
    }
    try ContentFiles.withPath(of: name, in: directory, body)
    return true
  }

  /// Where the newest entry's value is; nil if there is none or it has expired. Tells whether it
  /// found the entry damaged.
  func locate(
    _ key: Bytes, _ hash: UInt64, at moment: Moment, isDamaged: inout Bool
  ) throws(Failure) -> ValuePlace? {
    let view = overlay(key, hash, at: moment)
    if view.isGone { return nil }
    if let write = view.write {
      return ValuePlace(
        record: view.record, directory: write.file?.directory, file: write.file?.name)
    }
    var found = FoundEntry()
    guard
      try read(key, view.touch, view.barred, at: moment, wantsBlock: false, into: &found)
    else { return nil }
    guard found.row.isSound else {
      noteDamage(key, hash, found.row.record.version)
      isDamaged = true
      return nil
    }
    return ValuePlace(
      record: found.row.record, directory: found.directory, file: found.row.file)
  }

  func locate(
    _ key: Bytes, _ hash: UInt64, at moment: Moment
  ) throws(Failure) -> ValuePlace? {
    var isDamaged = false
    return try locate(key, hash, at: moment, isDamaged: &isDamaged)
  }

  func open(_ key: Bytes, _ hash: UInt64, at moment: Moment) throws(Failure) -> Int32? {
    var last: UInt64 = 0
    for _ in 0..<DiskTier.mostRounds {
      guard let found = try locate(key, hash, at: moment), let name = found.name,
        let directory = found.directory
      else { return nil }
      let version = found.record.version
      if let file = try ContentFiles.open(name, ofSize: found.record.size, in: directory) {
        counters.countHit()
        accesses.note(key, hash, at: moment.time)
        return file
      }
      // As in `find`: only if the same entry is there still, it is damaged.
      if version == last {
        noteDamage(key, hash, version)
        return nil
      }
      last = version
    }
    return nil
  }

  // MARK: holding

  func hold() { committer.withTurn { content.hold() } }

  func release() {
    if members.belongToParent { return }
    committer.withTurn { _ = content.release(in: place) }
  }
}

/// Where a value is.
struct ValuePlace {
  let record: Record
  /// Where the file is; nil: it has none.
  let directory: Directory?
  let file: ContentName?
  /// True if the file has a codec's output. No field of the row says the size of that.
  private var isEncoded: Bool { record.codec != 0 }

  /// The name of the file that has the value as it is; nil: there is none.
  var name: ContentName? { isEncoded ? nil : file }

  /// True if the value has no file, or the file is there and has the right size.
  func isComplete() throws(Failure) -> Bool {
    guard let file, let directory else { return true }
    guard let size = try ContentFiles.size(file, in: directory) else { return false }
    return isEncoded || size == record.size
  }
}
