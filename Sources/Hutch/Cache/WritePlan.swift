/// What a write of a key changes in each tier. The plan is made before anything is changed. One
/// function carries out the plans of puts (Cache+Submission.swift), one those of removals
/// (Cache+Writes.swift).
///
///   a put                           memory    store
///   through both tiers              value     put
///   into memory                     value     remove
///   on disk                         drop      put
///   whose value memory cannot take  drop      put
///   on eviction                     value     remove, if there is an entry: memory owes the value
///
///   a removal
///   of an entry that was found      drop      remove
///   of an entry that was not found, drop (1)  remove, if there is an entry: the answer comes with
///   and may come back after a kill            the commit
///   by a pop that found no entry,   keep      nothing
///   if the store is out of service
///
///   (1) A removal from all tiers, in other processes too: their memory tiers may still have copies
///       of an entry that was evicted from disk and then removed. A removal from the disk tier
///       alone that finds no entry leaves memory as it is.
struct WritePlan {
  enum InMemory {
    case value
    /// Memory drops the entry that it has.
    case drop
    case keep
  }

  enum InStore {
    case put
    case remove
    case removeIfThere
    case nothing
  }

  let memory: InMemory
  let store: InStore

  // The rest is for a put.

  /// Memory's outcome if it takes no value.
  var outcome = TierOutcome.removed
  /// The tiers that the value is meant for at once.
  var tiers = Tiers.whole
  /// How the store is to store the value; nil: the store chooses.
  var form: ValueForm?

  init(_ memory: InMemory, _ store: InStore) {
    self.memory = memory
    self.store = store
  }

  /// The plan of a put whose value is not in its block: a file or the caller's memory has it, or it
  /// was refused.
  /// `outcome`: memory's.
  init(_ target: WritePolicy, valueIn form: ValueForm, _ outcome: TierOutcome) {
    self.init(.drop, target == .memory ? .remove : .put)
    self.outcome = target == .disk ? .removed : outcome
    self.form = form
    form.isInBlock = false
    tiers = target.tiers
  }

  /// True if the put's block has the value.
  var isValueInBlock: Bool { form?.isInBlock ?? true }

  /// The plan of a put whose block has the value.
  init(_ target: WritePolicy, _ form: ValueForm? = nil) {
    switch target {
    case .standard, .through: self.init(.value, .put)
    case .memory: self.init(.value, .remove)
    case .disk: self.init(.drop, .put)
    case .onEviction: self.init(.value, .removeIfThere)
    }
    tiers = target.tiers
    self.form = form
  }
}

extension Cache {
  /// The plan of a put of an entry to `target`.
  func plan(
    _ entry: UnownedBlock, to target: WritePolicy, _ suffix: FileSuffix?, _ storage: any Storage
  ) -> WritePlan {
    let form = suffix.map { ValueForm(suffix: $0) }
    guard target == .onEviction else { return WritePlan(target, form) }
    // A value that the store would not take is put at once, so that the put has the store's answer.
    // After a fork every value is put at once.
    let isTaken =
      storage.files.map {
        values.isTaken(
          key: entry.keySize, size: entry.size, extended: entry.extendedSize,
          tag: Int(entry.tagSize), by: $0)
      } ?? true
    if defersNothing || form != nil || !isTaken { return WritePlan(.through, form) }
    return WritePlan(MemoryTier.charge(of: entry) <= memory.largestCharge ? .onEviction : .disk)
  }
}
