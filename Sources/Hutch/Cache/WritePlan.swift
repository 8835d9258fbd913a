/// The changes of a write of a key in each tier. They are decided before anything is changed; one
/// function carries out the puts (Cache+Submission.swift), one the removals (Cache+Writes.swift).
///
///   a put                           memory    store
///   through both tiers              value     put
///   into memory                     value     remove
///   on disk                         drop      put
///   whose value memory cannot take  drop      put
///   on eviction                     value     remove, if there is anything: memory owes the value
///
///   a removal
///   of what was found               drop      remove
///   of what was not found, and may  drop (1)  remove, if there is anything: the answer comes with
///   come back after a kill                    the commit
///   a pop that has found nothing,   keep      nothing
///   with the store out of service
///
///   (1) Of the whole, also in other processes: of an entry that was evicted on disk, and removed
///       since, memories may have copies still. A removal from the disk tier, which has nothing,
///       takes nothing from memory.
struct WritePlan {
  enum InMemory {
    case value
    /// The entry that is there goes.
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

  // Of a put.

  /// Memory's answer if it takes no value.
  var outcome = TierOutcome.removed
  /// Those that the value is meant for at once.
  var tiers = Tiers.whole
  /// How the store is to store the value; nil: as it likes.
  var form: ValueForm?

  init(_ memory: InMemory, _ store: InStore) {
    self.memory = memory
    self.store = store
  }

  /// Of a put whose value is not in its block: a file has it, or it was refused on the way there.
  /// `outcome`: memory's.
  init(_ target: WritePolicy, valueIn form: ValueForm, _ outcome: TierOutcome) {
    self.init(.drop, target == .memory ? .remove : .put)
    self.outcome = target == .disk ? .removed : outcome
    self.form = form
    form.isInBlock = false
    tiers = target.tiers
  }

  /// Whether the put's block has the value.
  var isValueInBlock: Bool { form?.isInBlock ?? true }

  /// Of a put with its value.
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
  /// How an entry is put that goes to `target`.
  func plan(
    _ entry: UnownedBlock, to target: WritePolicy, _ suffix: FileSuffix?, _ storage: any Storage
  ) -> WritePlan {
    let form = suffix.map { ValueForm(suffix: $0) }
    guard target == .onEviction else { return WritePlan(target, form) }
    // What the store would not take is put at once, and its answer told; so is all once there has
    // been a fork.
    let isTaken =
      storage.files.map {
        values.isTaken(
          key: entry.keySize, size: entry.size, extended: entry.extendedSize,
          tag: Int(entry.tagSize), by: $0)
      } ?? true
    if isFamily || form != nil || !isTaken { return WritePlan(.through, form) }
    return WritePlan(MemoryTier.charge(of: entry) <= memory.largestCharge ? .onEviction : .disk)
  }
}
