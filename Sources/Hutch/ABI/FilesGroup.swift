// Group large: files as values, writers, holds.

public import CHutch

@_cdecl("hutch_put_file") @implementation
public func hutch_put_file(
  _ cache: OpaquePointer!, _ key: UnsafeRawPointer!, _ key_size: Int,
  _ path: UnsafePointer<CChar>!, _ use: UInt32, _ options: UnsafePointer<hutch_put_options>!,
  _ result: UnsafeMutablePointer<hutch_put_result>!
) -> hutch_status {
  withHandle(cache, about: path) { (cache, handle) throws(Failure) in
    let key = try checkedKey(key, key_size)
    guard let path, path.pointee != 0 else { throw .invalid("the path is NULL or empty") }
    guard let chosen = Cache.FileUse(rawValue: use) else {
      throw .unknown("the use of the file is not defined", use)
    }
    let spec = try Cache.PutSpec.given(options)
    try begin(result)
    try handle.check()
    return try answer(try cache.putFile(key, path, chosen, spec, in: handle.scope), result)
  }
}

@_cdecl("hutch_path") @implementation
public func hutch_path(
  _ cache: OpaquePointer!, _ key: UnsafeRawPointer!, _ key_size: Int,
  _ buffer: UnsafeMutablePointer<CChar>!, _ capacity: Int, _ size: UnsafeMutablePointer<Int>!
) -> hutch_status {
  withCache(cache) { (cache, handle) throws(Failure) in
    let key = try checkedKey(key, key_size)
    guard let size else { throw .invalid("size is NULL") }
    let buffer = try checkedBuffer(buffer, capacity)
    var status = Status.notFound
    try cache.path(of: key, in: handle.scope) { (path) throws(Failure) in
      size.pointee = path.count
      status = path.count < buffer.count ? .done : .bufferTooSmall
      guard status == .done else { return }
      buffer.copyMemory(from: path)
      buffer[path.count] = 0
    }
    return status
  }
}

@_cdecl("hutch_open_fd") @implementation
public func hutch_open_fd(
  _ cache: OpaquePointer!, _ key: UnsafeRawPointer!, _ key_size: Int,
  _ out: UnsafeMutablePointer<Int32>!
) -> hutch_status {
  out?.pointee = -1
  return withCache(cache) { (cache, handle) throws(Failure) in
    let key = try checkedKey(key, key_size)
    guard let out else { throw .invalid("out is NULL") }
    guard let file = try cache.descriptor(of: key, in: handle.scope) else {
      return .notFound
    }
    out.pointee = file
    return .done
  }
}

@_cdecl("hutch_hold_files") @implementation
public func hutch_hold_files(_ cache: OpaquePointer!) -> hutch_status {
  withCache(cache) { (_, handle) throws(Failure) in
    try handle.holdFiles()
    return .done
  }
}

@_cdecl("hutch_unhold_files") @implementation
public func hutch_unhold_files(_ cache: OpaquePointer!) -> hutch_status {
  withCache(cache) { (_, handle) throws(Failure) in
    try handle.checkHolds()
    guard handle.releaseFiles() else { throw .invalid("this reference holds no files") }
    return .done
  }
}

// MARK: writers

@_cdecl("hutch_writer_begin") @implementation
public func hutch_writer_begin(
  _ cache: OpaquePointer!, _ key: UnsafeRawPointer!, _ key_size: Int, _ expected_size: UInt64,
  _ options: UnsafePointer<hutch_put_options>!, _ out: UnsafeMutablePointer<OpaquePointer?>!
) -> hutch_status {
  giving(out, of: cache) { (_, handle) throws(Failure) in
    let key = try checkedKey(key, key_size)
    guard let expected = Int(exactly: expected_size), expected <= Record.largestSize else {
      throw .invalid("expected_size is not a valid size")
    }
    return handOut(
      try Writer.begin(handle, key, expected: expected, try Cache.PutSpec.given(options)))
  }
}

extension Writer: HostHandle {
  static var isMissing: StaticString { "the writer is NULL" }
  func check() throws(Failure) {
    try Process.check(forks, "the writer belongs to the parent of this process")
    try handle.check()
  }
}

@_cdecl("hutch_writer_append") @implementation
public func hutch_writer_append(
  _ writer: OpaquePointer!, _ data: UnsafeRawPointer!, _ size: Int
) -> hutch_status {
  with(writer, Writer.self) { (writer) throws(Failure) in
    try writer.append(try checkedBytes(data, size, "the data are NULL, or their size is not valid"))
    return .done
  }
}

@_cdecl("hutch_writer_commit") @implementation
public func hutch_writer_commit(
  _ writer: OpaquePointer!, _ result: UnsafeMutablePointer<hutch_put_result>!
) -> hutch_status {
  answering { () throws(Failure) in
    guard let writer else { throw .invalid(Writer.isMissing) }
    let open = reference(writer, Writer.self).takeUnretainedValue()
    try open.checkNotEnded()
    try begin(result)
    try open.check()
    return try answer(try open.commit(), result)
  }
}

@_cdecl("hutch_writer_abort") @implementation
public func hutch_writer_abort(_ writer: OpaquePointer!) -> hutch_status {
  with(writer, Writer.self) { (writer) throws(Failure) in
    try writer.abort()
    return .done
  }
}

@_cdecl("hutch_writer_release") @implementation
public func hutch_writer_release(_ writer: OpaquePointer!) {
  release(writer, Writer.self)
}
