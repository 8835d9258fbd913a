import CSystem
import Synchronization

/// Values as files: those that come in pieces or as files, and those that are wanted as files.
extension DiskTier: FileStorage {
  func keepsInFile(_ size: Int) -> Bool { options.codec == nil && goesIntoFile(size) }

  func takes(key: Int, size: Int, extended: Int) -> Bool {
    // Nobody knows what a codec makes of it.
    if options.codec != nil { return true }
    let inFile = goesIntoFile(size)
    let charge = Charge.of(key: key, value: size, extended: extended, inFile: inFile)
    return UInt64(charge) <= limits.largestCharge && (inFile || size <= DiskTier.largestInline)
  }

  // MARK: making

  func begin(_ file: ValueFile) throws(Failure) {
    let (name, directory) = try newName(file.suffix)
    do throws(Failure) {
      file.descriptor = try ContentFiles.create(name, in: directory)
    } catch {
      land(name)
      throw error
    }
    file.name = name
    file.directory = directory
  }

  func append(_ bytes: Bytes, to file: ValueFile) throws(Failure) {
    let words: StaticString = "cannot write a content file"
    if !Files.write(bytes, to: file.descriptor, at: file.size) {
      let failure = Failure.system(words)
      guard failure.status == .noSpace else { throw failure }
      makeRoom(Int64(bytes.count))
      guard Files.write(bytes, to: file.descriptor, at: file.size) else { throw .system(words) }
    }
    file.sum.add(bytes)
    file.size += bytes.count
  }

  func finish(_ file: ValueFile) throws(Failure) {
    guard let name = file.name, let directory = file.directory else { return }
    try ContentFiles.settle(file.descriptor, name, in: directory, syncing)
    file.close()
    file.checksum = file.sum.value
    file.isWhole = true
  }

  func link(
    _ path: Files.Path, _ source: Int32, size: Int, checksum: UInt64, as file: ValueFile
  ) throws(Failure) -> Bool {
    let (name, directory) = try newName(file.suffix)
    do throws(Failure) {
      guard try ContentFiles.link(path, source, name, in: directory, syncing) else {
        land(name)
        return false
      }
    } catch {
      land(name)
      throw error
    }
    file.name = name
    file.directory = directory
    file.size = size
    file.checksum = checksum
    file.isWhole = true
    return true
  }

  func discard(_ file: ValueFile) {
    file.close()
    guard let name = file.name, let directory = file.directory else { return }
    ContentFiles.discard(file.isWhole ? name : name.temporary, in: directory)
    land(name)
    file.name = nil
  }

  // MARK: finding

  func locate(_ key: Bytes, at moment: Moment) throws(Failure) -> ValuePlace? {
    var isDamaged = false
    return try locate(key, at: moment, isDamaged: &isDamaged)
  }

  /// Tells whether it found the entry damaged.
  func locate(
    _ key: Bytes, at moment: Moment, isDamaged: inout Bool
  ) throws(Failure) -> ValuePlace? {
    var times: Record?
    var barred: UInt64?
    if queue.isOverlaid {
      let view = queue.look(up: key)
      if view.isGone { return nil }
      if let write = view.write {
        guard let record = visible(write, view.times, at: moment) else { return nil }
        return ValuePlace(
          record: record, directory: write.directory, name: write.codec == 0 ? write.file : nil)
      }
      times = view.times
      barred = view.barred
    }
    var found = FoundEntry()
    guard let row = try read(key, times, barred, at: moment, wantsBlock: false, into: &found)
    else { return nil }
    guard row.isSound else {
      noteDamage(key, row.record.version)
      isDamaged = true
      return nil
    }
    // Behind a codec the file is not the value's, nor is the checksum.
    guard row.codec == 0 else {
      var record = row.record
      record.checksum = 0
      return ValuePlace(record: record, directory: nil, name: nil)
    }
    return ValuePlace(record: row.record, directory: found.directory, name: row.file)
  }

  func open(_ key: Bytes, at moment: Moment) throws(Failure) -> Int32? {
    var last: UInt64 = 0
    for _ in 0..<DiskTier.mostRounds {
      guard let found = try locate(key, at: moment), let name = found.name,
        let directory = found.directory
      else { return nil }
      let version = found.record.version
      if let number = try ContentFiles.open(name, in: directory) {
        let file = Descriptor(owning: number)
        if let status = Files.status(of: number), hutch_is_regular(status.st_mode) != 0,
          Int(status.st_size) == found.record.size
        {
          counters.hits.add()
          accesses.note(key, at: moment.time)
          return file.take()
        }
      }
      // As in `find`: only if the same entry is there still, it is damaged.
      if version == last {
        noteDamage(key, version)
        return nil
      }
      last = version
    }
    return nil
  }

  // MARK: holding

  func hold() { writerLock.withLock { trash.holds += 1 } }

  func release() {
    writerLock.withLock {
      trash.holds -= 1
      if trash.holds == 0 { trash.moveHeld(in: place) }
    }
  }
}
