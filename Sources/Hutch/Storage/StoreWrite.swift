/// One write to a store, as plain bits: the block, the form and the ticket that it names are
/// references of others. A store that needs the write for longer than the call of `Storage.write`
/// keeps a copy of what it needs, and leaves a ticket.
struct StoreWrite {
  enum Kind {
    /// Store `entry`.
    case put
    /// Remove the entry of `entry`'s key.
    case remove
    /// Set the times of the entry of `entry`'s key to those of `entry`, if it is there.
    case touch
    /// Advance the generation: removes every entry written before.
    case clear
  }

  let kind: Kind
  /// The value with key and record. For `remove` only the key counts, for `touch` the key and the
  /// times: created, which is the time of the access too, expires, time to idle. For `clear`: nil.
  /// The caller keeps the block until the write is finished.
  let entry: UnownedBlock?
  /// The hash of the entry's key; 0 for a clear.
  let hash: UInt64
  /// Drawn by the cache before `Storage.write`; a put's block has the same version.
  var version: UInt64 = 0
  /// When the write was submitted.
  var time: Int64 = 0
  /// Of a put: when a tier above last read the entry, from which a time to idle goes on. A store
  /// may ignore it that keeps what `Storage.noteAccess` says of a key that it does not have yet.
  var accessed: Int64 = 0
  private var unownedForm: Unmanaged<ValueForm>?

  /// The keys for which a removal is carried out; for the others `Storage.write` may do nothing.
  enum Need {
    case always
    /// A key that the store may have anything of, now or after a kill: an entry, an expired one, or
    /// one that a write removes that is submitted and not yet committed. A store that is out of
    /// service may have anything.
    case ifHeld
    /// As `ifHeld`, and a key whose entry a commit drops of which the observer has not been told
    /// (`StorageObserver.storeDrops`): the events of this write come after that one.
    case ifHeldOrUntold
    /// A key with a write that is submitted and not yet committed, or with a bar: reads see another
    /// state of it than a kill would leave.
    case ifPending
  }

  var need = Need.always

  // Where several processes share the store (`Storage.sharing`); otherwise these keep their initial
  // values.

  /// Decided where the write is carried out. Until then no read sees a write with a condition of a
  /// caller (`WriteCondition.isOfCaller`).
  var condition = WriteCondition.always

  /// The entry that memory had of the key when the write was submitted. Where the store has no
  /// entry, it is the entry that is written over, if the key's counter still has its number.
  struct Copy {
    let version: UInt64
    let mark: UInt32
  }

  /// Nil: memory had none.
  var copy: Copy?

  /// Belongs to the cache: an entry on its way to the store has made way (see WriteOrder).
  var hasReplaced = false

  /// Valid when the write is finished.
  var result = Result()

  /// A counted reference of the store's. Not nil: the store owes the commit, and the caller owes
  /// `Storage.finish`, which releases the ticket. Nil after `Storage.write`: the write is finished.
  var ticket: Unmanaged<AnyObject>?

  init(_ kind: Kind, _ entry: UnownedBlock?, _ hash: UInt64) {
    self.kind = kind
    self.entry = entry
    self.hash = hash
  }

  /// For a put: how the store is to store the value; nil: as it likes. The caller keeps the form
  /// until the write is finished.
  var form: ValueForm? {
    @inline(__always) get { unownedForm?.takeUnretainedValue() }
    @inline(__always) set { unownedForm = newValue.map { Unmanaged.passUnretained($0) } }
  }

  /// Asked about a removal that has been submitted. False: it was done at once, and there was no
  /// entry.
  var mayHaveRemoved: Bool {
    ticket != nil || hasReplaced || result.existed || result.isUnmet || result.failure != nil
  }

  /// The outcome of a write.
  struct Result {
    /// Nil: committed.
    var failure: Failure?
    /// For a put, also if it was refused: stored, tooLarge, noSpace or failed. If a put is not
    /// stored, the commit has removed the entry that was there.
    var outcome = TierOutcome.none
    /// True if there was an entry, not expired, before the write.
    var existed = false

    // Where several processes share the store.

    /// The condition did not hold, and nothing was done.
    var isUnmet = false
    /// The version that was found, in the store or by `StoreWrite.copy`; 0: none.
    var existing: UInt64 = 0
    /// The number under which memory may remember the entry (CoherenceCounters).
    var mark: UInt32 = 1
  }
}

/// How a store is to store the value of a put, where there is more to say than that it should. It
/// belongs to one put, and one thread at a time uses it.
final class ValueForm {
  /// The end of the name of the value's file, if the store keeps the value in one; nil: the value
  /// need not have a file.
  var suffix: FileSuffix?
  /// The file that has the value; nil: the put's block has it, or there is none.
  var file: PendingFile?
  /// False: the put's block has no value; `file` or `bytes` have it, or it was refused before.
  var isInBlock = true
  /// The value, in memory that is valid until `Storage.write` returns; nil: it is not there. For a
  /// value that is kept in a file, and for a store that needs it no longer (`Storage.takesBytes`).
  var bytes: Bytes?
  /// Not `none`: the reason why the store will not store the value. The put then removes the
  /// existing entry.
  var refusal = TierOutcome.none
  /// The failure behind `refusal`, if there is one.
  var failure: Failure?
  /// Keeps the write's entry if a codec has made it of the value's; nil: none has.
  var encoded: Block?

  @inline(never)
  init(suffix: FileSuffix? = nil) { self.suffix = suffix }

  /// Notes why the value will not be stored.
  func refuse(for reason: Failure) {
    refusal = TierOutcome(of: reason)
    failure = reason
  }
}
