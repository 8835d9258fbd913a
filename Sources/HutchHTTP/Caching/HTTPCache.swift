import CHutchHTTP
import CSystem

/// The hutch_cache of a session. The key of a URL is "GET ", and the URL as Address makes it
/// canonical; StoredResponse has the form of the values. Failures of the cache are misses.
final class HTTPCache {
  let pointer: OpaquePointer
  /// The view of its memory tier; nil: it has none.
  private let memory: OpaquePointer?
  /// Likewise of its disk tier.
  let disk: OpaquePointer?
  /// How long a lease may stay without a change, in nanoseconds; 0: there are no leases.
  let term: Int64
  /// For more than one user (RFC 9111, section 1).
  let isShared: Bool
  /// It works for the origin servers, as a CDN does: CDN-Cache-Control is for it (RFC 9213).
  let isTargeted: Bool
  let mode: UInt32
  private let clock: hutch_clock?
  private let clockContext: UnsafeMutableRawPointer?

  private convenience init(
    _ pointer: OpaquePointer, flags: UInt32, mode: UInt32, term: Int64
  ) throws(Failure) {
    var options = hutch_options()
    options.struct_size = MemoryLayout<hutch_options>.size
    guard hutch_get_options(pointer, &options) == HUTCH_OK else {
      throw .invalid("the cache cannot be used")
    }
    self.init(pointer, options, flags: flags, mode: mode, term)
  }

  private init(
    _ pointer: OpaquePointer, _ options: hutch_options, flags: UInt32, mode: UInt32, _ term: Int64
  ) {
    self.term = term
    clock = options.clock
    clockContext = options.clock_context
    isTargeted = flags & UInt32(HUTCH_HTTP_CACHE_CDN) != 0
    isShared = isTargeted || flags & UInt32(HUTCH_HTTP_CACHE_SHARED) != 0
    self.mode = mode
    self.pointer = hutch_cache_retain(pointer)
    var memory: OpaquePointer?
    self.memory = hutch_tier(pointer, UInt32(HUTCH_TIER_MEMORY), &memory) == HUTCH_OK ? memory : nil
    var disk: OpaquePointer?
    self.disk = hutch_tier(pointer, UInt32(HUTCH_TIER_DISK), &disk) == HUTCH_OK ? disk : nil
  }

  deinit {
    hutch_cache_release(pointer)
    if let memory { hutch_cache_release(memory) }
    if let disk { hutch_cache_release(disk) }
  }

  var hasMemory: Bool { memory != nil }

  static func optional(_ given: hutch_http_configuration) throws(Failure) -> HTTPCache? {
    try checkFlags(
      given.cache_flags,
      UInt32(HUTCH_HTTP_CACHE_SHARED | HUTCH_HTTP_CACHE_NO_LEASES | HUTCH_HTTP_CACHE_CDN))
    let lease = try checkedDuration(given.cache_lease)
    let mode = try checkedMode(given.cache_mode)
    guard let cache = given.cache else {
      guard mode == 0, given.cache_flags == 0, lease == 0 else {
        throw .invalid("a mode, a flag or a lease is set, but there is no cache")
      }
      return nil
    }
    let hasLeases = given.cache_flags & UInt32(HUTCH_HTTP_CACHE_NO_LEASES) == 0
    return try HTTPCache(
      cache, flags: given.cache_flags,
      mode: mode == 0 ? UInt32(HUTCH_HTTP_CACHE_BY_PROTOCOL) : mode,
      term: !hasLeases ? 0 : lease == 0 ? 5_000_000_000 : lease)
  }

  /// What decides about a response in this cache.
  func control(of fields: borrowing Fields) -> CacheControl {
    CacheControl(of: fields, isTargeted: isTargeted)
  }

  static func checkedMode(_ mode: UInt32) throws(Failure) -> UInt32 {
    guard mode <= UInt32(HUTCH_HTTP_CACHE_NONE) else {
      throw .unknown("a mode of the cache is not defined", mode)
    }
    return mode
  }

  /// The time in Unix nanoseconds: that of the cache's clock.
  var now: Int64 { clock.map { $0(clockContext) } ?? Clock.read(CLOCK_REALTIME) }

  static func key(of url: Text) throws(Failure) -> Text {
    var key = GrowingArray<UInt8>()
    try key.append("GET ")
    try Address.append(canonical: url, to: &key)
    return try Text(Bytes(key.elements))
  }

  private func value(_ key: Text, isInMemory: Bool = false) -> StoredValue? {
    var value: OpaquePointer?
    let place = isInMemory ? memory : pointer
    guard hutch_get(place, key.start, key.count, &value) == HUTCH_OK, let value else {
      return nil
    }
    return StoredValue(owning: value)
  }

  /// The newest response that fits a request; nil: there is none.
  /// `isInMemory`: the disk is not read.
  func find(
    _ key: Text, for transfer: Transfer, isInMemory: Bool = false
  ) throws(Failure) -> StoredResponse? {
    if !isInMemory, let file = largeValue(key) { return try find(file, for: transfer) }
    guard let value = value(key, isInMemory: isInMemory),
      var reader = StoredResponse.Reader(value)
    else { return nil }
    var newest: StoredResponse?
    while let record = reader.next() {
      let time = StoredResponse.responseTime(value.bytes, at: record.lowerBound) ?? Int64.min
      if let newest, newest.responseTime >= time { continue }
      if let response = try StoredResponse.decode(value, record, isTargeted: isTargeted),
        try transfer.isAnswered(by: response)
      {
        newest = response
      }
    }
    return newest
  }

  /// Values that are larger are not read whole, and bodies that are larger are written piece by
  /// piece.
  static var mostInMemory: Int { 1 << 20 }
  static var mostInRecord: Int { 256 << 10 }

  /// The value, if it is in a file of the disk tier and large.
  private func largeValue(_ key: Text) -> StoredFile? {
    guard let disk else { return nil }
    var info = hutch_entry_info()
    info.struct_size = MemoryLayout<hutch_entry_info>.size
    guard hutch_info(pointer, key.start, key.count, &info) == HUTCH_OK,
      info.size > UInt64(HTTPCache.mostInMemory), info.tier == UInt32(HUTCH_TIER_DISK)
    else { return nil }
    return StoredFile.open(disk, key)
  }

  private func find(
    _ file: StoredFile, for transfer: Transfer
  ) throws(Failure) -> StoredResponse? {
    var newest: StoredResponse?
    try forEachRecord(file) { (record) throws(Failure) in
      if let response = try StoredResponse.decode(file, record, isTargeted: isTargeted),
        newest.map({ $0.responseTime < response.responseTime }) ?? true,
        try transfer.isAnswered(by: response)
      {
        newest = response
      }
    }
    return newest
  }

  private func forEachRecord(
    _ file: StoredFile, _ body: (Range<Int>) throws(Failure) -> Void
  ) throws(Failure) {
    let mark = StoredResponse.mark
    guard let start = try file.read(0, 4),
      start.bytes.hasSameBytes(as: bytes(of: mark))
    else { return }
    var index = 4
    while let head = try file.read(index, 8),
      let size = StoredResponse.number(head.bytes, at: 0, as: UInt64.self),
      let record = StoredResponse.record(at: index, size, file.size)
    {
      try body(record)
      index = record.upperBound
    }
  }

  /// Calls `body` with the bytes of the responses for other requests, one after the other. A record
  /// that goes as far as its value gets its size.
  func forEachOther(
    _ key: Text, for transfer: Transfer, _ body: (Bytes) throws(Failure) -> Void
  ) throws(Failure) {
    var left = StoredResponse.mostVariants - 1
    func size(_ record: Range<Int>) throws(Failure) {
      var bytes = GrowingArray<UInt8>()
      try StoredResponse.append(UInt64(record.count - 8), to: &bytes)
      try body(Bytes(bytes.elements))
    }
    if let file = largeValue(key) {
      try forEachRecord(file) { (record) throws(Failure) in
        guard left > 0, let other = try StoredResponse.decode(file, record, isTargeted: isTargeted),
          try !transfer.isAnswered(by: other)
        else { return }
        try size(record)
        _ = try file.forEachPiece((record.lowerBound + 8)..<record.upperBound) {
          (piece) throws(Failure) in
          try body(piece)
          return true
        }
        left -= 1
      }
    } else if let value = value(key), var reader = StoredResponse.Reader(value) {
      while left > 0, let record = reader.next() {
        guard let other = try StoredResponse.decode(value, record, isTargeted: isTargeted),
          try !transfer.isAnswered(by: other)
        else { continue }
        try size(record)
        try body(Bytes(rebasing: value.bytes[record][(record.lowerBound + 8)...]))
        left -= 1
      }
    }
  }

  /// Stores a response before those for other requests, and in place of those for this one.
  func store(
    _ response: StoredResponse, at key: Text, for transfer: Transfer
  ) throws(Failure) {
    if response.bodySize > HTTPCache.mostInRecord || largeValue(key) != nil,
      let writer = try StoringWriter.begin(
        response, size: UInt64(response.bodySize), in: self, at: key, for: transfer)
    {
      let isWhole = try response.forEachPiece(0..<response.bodySize) { (piece) throws(Failure) in
        writer.append(piece)
        return true
      }
      if !isWhole || !writer.commit() { remove(key) }
      return
    }
    guard response.isInMemory else { return remove(key) }
    var encoded = GrowingArray<UInt8>()
    try StoredResponse.beginEncoding(&encoded)
    try response.encode(to: &encoded)
    try forEachOther(key, for: transfer) { (bytes) throws(Failure) in
      try encoded.append(contentsOf: bytes)
    }
    _ = hutch_put(
      pointer, key.start, key.count, encoded.elements.baseAddress, encoded.count, nil, nil)
  }

  func remove(_ key: Text) { _ = hutch_remove(pointer, key.start, key.count) }
}

/// A reference to a value of libhutch.
final class StoredValue {
  private let pointer: OpaquePointer
  /// Valid as long as the object.
  let bytes: Bytes

  init(owning pointer: OpaquePointer) {
    self.pointer = pointer
    bytes = Bytes(start: hutch_value_data(pointer), count: hutch_value_size(pointer))
  }

  deinit { hutch_value_release(pointer) }
}
