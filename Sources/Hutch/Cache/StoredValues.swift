/// The host's codec, between the cache and its store: values are encoded before a stripe is taken,
/// and decoded after the store was read, so a codec is called with no lock held. The store keeps
/// bytes. Their record says which codec made them and how large the value is (`Record.codec`,
/// `Record.decodedSize`).
///
/// A block that the store returns has what it keeps, or the value itself: of an entry without a
/// codec. Memory has blocks of values only.
struct StoredValues {
  /// Nil: the store keeps values as they are.
  let codec: Codec?

  var codecID: UInt32 { codec?.id ?? 0 }

  /// A larger value comes of a 65,536th of its size at least, or the entry is damaged: memory is
  /// not asked for on the word of a number alone.
  private static let largeValue = 1 << 30

  // MARK: writing

  /// A prepared put of an entry, or of a block with what the codec has made of the value. The
  /// caller keeps the entry and the form, which may be made here. If the codec fails, the put will
  /// remove what the store has. No lock is held.
  @inline(never)
  func put(
    _ entry: UnownedBlock, _ hash: UInt64, _ form: inout ValueForm?, to storage: any Storage
  ) -> StoreWrite {
    let stored = codec.map { encode(entry, $0, &form) } ?? entry
    storage.prepare(stored, &form)
    var write = StoreWrite(.put, stored, hash)
    if let form { write.form = form }
    write.version = entry.version
    return write
  }

  /// The block that is to be stored; the form keeps it.
  @inline(never)
  private func encode(
    _ entry: UnownedBlock, _ codec: Codec, _ given: inout ValueForm?
  ) -> UnownedBlock {
    let form = given ?? ValueForm()
    given = form
    if !form.isInBlock { return entry }
    do throws(Failure) {
      let block = try encoded(entry, codec)
      let stored = block.unowned
      form.encoded = consume block
      return stored
    } catch {
      form.refuse(for: error)
      return entry
    }
  }

  private func encoded(_ entry: UnownedBlock, _ codec: Codec) throws(Failure) -> Block {
    let output = try codec.encode(Bytes(entry.value))
    var record = entry.record
    record.codec = codec.id
    record.decodedSize = record.size
    return try Block.copying(
      key: entry.key, value: output.bytes, extended: entry.extended, record: record,
      wantsChecksum: true)
  }

  /// True if the store would keep a value of this size in a file, as it is.
  func keepsInFile(_ size: Int, _ files: any FileStorage) -> Bool {
    codec == nil && files.keepsInFile(size)
  }

  /// True if the store's limits allow an entry with a value of this size. With a codec the answer
  /// is a guess, since the size of its output is not known.
  func isTaken(
    key: Int, size: Int, extended: Int, tag: Int, by files: any FileStorage
  ) -> Bool {
    codec != nil || files.takes(key: key, size: size, extended: extended, tag: tag)
  }

  // MARK: reading

  /// The entry with its value. Nil: the store has none, or it is damaged.
  @inline(__always)
  func get(
    _ key: Bytes, _ hash: UInt64, at moment: Moment, isAccess: Bool, from storage: any Storage
  ) throws(Failure) -> Block? {
    guard let block = try storage.get(key, hash, at: moment, isAccess: isAccess) else { return nil }
    guard block.unowned.isEncoded else { return block }
    return try decoded(block.unowned, hash, in: storage)
  }

  /// The entry with its value, of one that is encoded. Nil: it is damaged.
  @inline(never)
  func decoded(
    _ entry: UnownedBlock, _ hash: UInt64, in storage: any Storage
  ) throws(Failure) -> Block? {
    var record = entry.record
    guard let codec, codec.id == record.codec else { return nil }
    if record.decodedSize <= StoredValues.largeValue
      || record.decodedSize >> 16 <= record.size
    {
      record = record.ofValue
      // There is room for it then; it is computed from the value.
      record.checksum = 1
      let block = try Block.allocate(key: entry.key, record: record)
      if try codec.decode(Bytes(entry.value), into: block.unowned.value) {
        entry.extended.copy(to: block.unowned.extendedData)
        block.unowned.setChecksum()
        return block
      }
    }
    storage.noteDamage(entry.key, hash, entry.version)
    return nil
  }
}
