extension Block {
  /// A block with copies of a value, its extended data and its tag. It takes the sizes in `record`
  /// from them.
  @_optimize(speed)
  static func copying(
    key: Bytes, value: Bytes, extended: Extended, record: Record, wantsChecksum: Bool = false
  ) throws(Failure) -> Block {
    var record = record
    record.size = value.count
    record.setSizes(of: extended)
    if wantsChecksum { record.checksum = 1 }
    let block = try allocate(key: key, record: record)
    if value.count > 0 {
      block.unowned.value.baseAddress!
        .copyMemory(from: value.baseAddress!, byteCount: value.count)
    }
    if extended.count > 0 { extended.copy(to: block.unowned.extendedData) }
    if wantsChecksum { block.unowned.setChecksum() }
    return block
  }
}

extension UnownedBlock {
  /// A block with the same key, value and extended data and another record, but for the checksum,
  /// which is the value's.
  func copied(with record: Record) throws(Failure) -> Block {
    var record = record
    record.checksum = checksum
    let block = try Block.copying(
      key: key, value: Bytes(value), extended: extended, record: record)
    block.unowned.mark = mark
    block.unowned.setDirty(isDirty)
    return block
  }
}
