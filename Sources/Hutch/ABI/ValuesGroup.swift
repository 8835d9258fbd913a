// Values: a hutch_value is a counted reference to a block. None of these functions can fail, except
// hutch_value_info with its struct.

public import CHutch

private func block(_ value: OpaquePointer?) -> UnownedBlock? {
  value.map { UnownedBlock(UnsafeMutableRawPointer($0)) }
}

@_cdecl("hutch_value_data") @implementation
public func hutch_value_data(_ value: OpaquePointer!) -> UnsafeRawPointer! {
  block(value).map { UnsafeRawPointer($0.value.baseAddress!) }
}

@_cdecl("hutch_value_size") @implementation
public func hutch_value_size(_ value: OpaquePointer!) -> Int {
  block(value)?.size ?? 0
}

@_cdecl("hutch_value_key") @implementation
public func hutch_value_key(_ value: OpaquePointer!) -> UnsafeRawPointer! {
  block(value)?.key.baseAddress
}

@_cdecl("hutch_value_key_size") @implementation
public func hutch_value_key_size(_ value: OpaquePointer!) -> Int {
  block(value)?.keySize ?? 0
}

@_cdecl("hutch_value_extended") @implementation
public func hutch_value_extended(_ value: OpaquePointer!) -> UnsafeRawPointer! {
  block(value).map { UnsafeRawPointer($0.extendedData.baseAddress!) }
}

@_cdecl("hutch_value_extended_size") @implementation
public func hutch_value_extended_size(_ value: OpaquePointer!) -> Int {
  block(value)?.extended.data.count ?? 0
}

@_cdecl("hutch_value_tag") @implementation
public func hutch_value_tag(_ value: OpaquePointer!) -> UnsafeRawPointer! {
  // A plain block has no place for a tag.
  block(value).map { $0.extended.tag.baseAddress ?? UnsafeRawPointer($0.raw) }
}

@_cdecl("hutch_value_tag_size") @implementation
public func hutch_value_tag_size(_ value: OpaquePointer!) -> Int {
  Int(block(value)?.tagSize ?? 0)
}

@_cdecl("hutch_value_info") @implementation
public func hutch_value_info(
  _ value: OpaquePointer!, _ out: UnsafeMutablePointer<hutch_entry_info>!
) -> hutch_status {
  answering { () throws(Failure) in
    guard let block = block(value) else { throw .invalid("the value is NULL") }
    return try filling(out) {
      let record = block.record
      return hutch_entry_info(record, at: record.created, under: Ages(), in: .memory)
    }
  }
}

@_cdecl("hutch_value_retain") @implementation
public func hutch_value_retain(_ value: OpaquePointer!) -> OpaquePointer! {
  _ = block(value)?.retained().leak()
  return value
}

@_cdecl("hutch_value_release") @implementation
public func hutch_value_release(_ value: OpaquePointer!) {
  block(value)?.release()
}
