/// The look for a key in memory and below, as one answer.
///
/// A read asks memory, then what is below, and holds no lock. WHY A SECOND LOOK: the entry may be
/// below while memory is asked, and in memory while the store is asked, so that both looks miss it.
/// It comes up in three ways:
///   - a promotion brings it into memory, and the store evicts the row;
///   - a put on eviction replaces an entry of the store by one in memory;
///   - where processes share, another write of the key's counter is committed: memory's copy does
///     not count at the moment of the look, and counts until the commit ends.
/// A miss therefore stands only if memory misses the key once more, after the store has, and if
/// no write of the stripe was submitted and no commit of the counter ended since the round began:
/// an entry that has come up leaves memory again by a write only, and a copy that counts no more
/// is replaced by a commit.
///
/// WHEN THE SEARCH ENDS. A write of any key of the stripe asks for another round, and the stripe
/// may be written all the time. From round `lastRound` on the stripe's lock is held for one look
/// more: then no entry comes up, and a miss of both tiers stands. If that look finds the key, the
/// next round reads it. So a search goes on only for as long as its own key is written.
///
/// Round 0 alone counts as an access of the store, found or missed: one get is one hit or one miss.
extension Cache {
  /// What a read notes before it asks the store.
  struct Round: BitwiseCopyable {
    let state: Stripes.State
    /// The key's counter, where processes share.
    let counter: UInt32?
    let number: Int
  }

  private static let lastRound = 3

  @inline(never)
  func beginRound(_ hash: UInt64, number: Int = 0) -> Round {
    let state = order.stripes.stableState(Stripes.index(of: hash))
    return Round(state: state, counter: coherence?.mark(hash), number: number)
  }

  /// The answer of the tiers in `scope`, of which the caller has asked memory: the answer of
  /// `below`, or that of a second look. `inMemory`: memory's answer. `copy`: the answer that a
  /// block of memory gives. No lock is held.
  @inline(__always)
  func search<Answer: ~Copyable>(
    _ key: Bytes, _ hash: UInt64, at moment: Moment, in scope: Tiers, _ storage: any Storage,
    below: (Round) throws(Failure) -> Answer?, inMemory: () -> Answer?,
    copy: (consuming Block) -> Answer
  ) throws(Failure) -> Answer? {
    let round = beginRound(hash)
    if let answer = try below(round) { return answer }
    if scope == .disk { return nil }
    return try search(
      key, hash, at: moment, after: round, storage, below: below, inMemory: inMemory, copy: copy)
  }

  /// As above, of the whole, after a round in which both tiers have missed the key.
  @inline(never)
  func search<Answer: ~Copyable>(
    _ key: Bytes, _ hash: UInt64, at moment: Moment, after missed: Round, _ storage: any Storage,
    below: (Round) throws(Failure) -> Answer?, inMemory: () -> Answer?,
    copy: (consuming Block) -> Answer
  ) throws(Failure) -> Answer? {
    var round = missed
    while true {
      if let block = memory.peekDuringCommit(key, hash, at: moment) { return copy(block) }
      if try isMissing(key, hash, in: round, at: moment, storage) { return nil }
      round = beginRound(hash, number: round.number + 1)
      if let answer = inMemory() { return answer }
      if let answer = try below(round) { return answer }
    }
  }

  /// True if the miss of a round stands.
  private func isMissing(
    _ key: Bytes, _ hash: UInt64, in round: Round, at moment: Moment, _ storage: any Storage
  ) throws(Failure) -> Bool {
    let stripe = Stripes.index(of: hash)
    if !memory.has(key, hash, at: moment) && coherence?.mark(hash) == round.counter
      && order.stripes.isSettled(stripe, since: round.state)
    {
      return true
    }
    if round.number < Cache.lastRound { return false }
    order.stripes.lock(stripe)
    defer { order.stripes.unlock(stripe) }
    // The entry may leave memory meanwhile, so memory is asked first.
    if memory.has(key, hash, at: moment) { return false }
    return try versionBelow(key, hash, at: moment, in: .whole, storage).version == 0
  }

  /// The version of the existing entry, 0 if there is none, for a caller that holds the stripe and
  /// has asked memory; and whether there is one that has expired. No entry comes up then, but by a
  /// commit of this process that evicts the row which it writes.
  @inline(never)
  func versionBelow(
    _ key: Bytes, _ hash: UInt64, at moment: Moment, in scope: Tiers, _ storage: any Storage
  ) throws(Failure) -> (version: UInt64, hasExpired: Bool) {
    let counter = coherence?.mark(hash)
    var hasExpired = false
    if var stored = try infoBelow(key, hash, at: .first, storage) {
      let accessed = stored.accessed
      hasExpired = stored.isExpired(
        at: moment.time, under: storage.ages, key, asking: self)
      if !hasExpired {
        // The caller may drop memory's copy, by whose reads the entry lives, and then the store
        // looks.
        if stored.accessed != accessed { storage.noteAccess(key, hash, at: stored.accessed) }
        return (stored.version, false)
      }
    }
    guard let counter, scope == .whole else { return (0, hasExpired) }
    let block = memory.peekDuringCommit(key, hash, at: moment)
    if let block = block.unowned { return (block.version, false) }
    if coherence?.mark(hash) == counter { return (0, hasExpired) }
    // A commit has ended. An older copy does not count any more; the commit may have put the entry.
    if let stored = try infoBelow(key, hash, at: moment, storage) { return (stored.version, false) }
    return (memory.version(key, hash, at: moment), hasExpired)
  }
}
