import CSystem
import Synchronization

/// A fork of the process, and what becomes of its caches: parent and child both go on.
///
/// The child has a copy of all memory and none of the threads. Whatever a thread was about to
/// change stays half done for ever, a lock that it held is held for ever; and what a store has of
/// a process only once (locks on files, connections) is the parent's. So a fork is prepared
/// (pthread_atfork):
///
/// PREPARE, in the thread that forks, in this order
///   1 the registry's lock   no thread opens or closes a directory; then the lock of the roster,
///                           which lists the caches
///   2 every gate is paused  a call that wants to use a store waits outside. A call that is inside
///                           finishes: its commit ends, and it leaves nothing queued. A call that
///                           is within a callback is not waited for: the callback may wait for
///                           something that this thread holds, such as Python's lock. Such a call
///                           holds no lock of the library, and goes on after the pause. What memory
///                           owes to a store (writing on eviction) is written. From the fork on
///                           such a put is written at once
///   3 per cache             limitsChange, limitsLock, all stripes, then the write order's lock
///   4 per cache             the locks of the memory tier's shards, ascending; then the store's,
///                           which gives up what the process has only once (Storage.prepareFork)
/// PARENT   unlocks, and ends the pause. The store opens again what it closed, when that is next
///          needed.
/// CHILD    the same; and each cache is a new one over the same tiers (`makeForChild`), with new
///          parts in place of those that threads of the parent have left. From here on the two are
///          as two processes that share the directory: the memory of each answers for a key until
///          the other process writes the key, versions come from one number, writers take turns.
///          Nothing is opened and no thread is made before the child asks for something.
///
/// A cache without a store is two independent caches from here on.
///
/// Bounds. PREPARE waits for a second at most, in all (and 0.2 s for locks that are held for a
/// few steps only). A call may not have left the store by then: its commit stalls, say, or it
/// checks every entry. Or a directory is being opened or closed. Then the child's disk tier is out
/// of service for ever, with HUTCH_FORKED as the reason, and its memory tier begins empty, since
/// the child would not learn of the parent's writes. The parent is not affected: the child does not
/// change what they share.
///
/// A fork from within a callback (a listener, loader, task, visitor, codec) is not prepared at all:
/// a thread that it would wait for may wait for the callback. Every call on the child's caches
/// answers HUTCH_FORKED.
///
/// Caches that a queue of the host's serves have one new queue in the child.
///
/// Tasks, groups, queues, ports, cursors, writers, loadings and holds of the parent answer
/// HUTCH_FORKED in the child. Each remembers the count of forks (Process) at its creation. The
/// child can read host objects, but only the parent releases them. The listener, the clock and the
/// codec are copied with their contexts, and each process releases its copy once, when it closes.
/// The child does not release a copy that a thread of the parent was using during the fork.
enum Forking {
  /// How far a cache is ready for a fork.
  enum Preparation {
    /// Not at all: the child's handles are dead.
    case none
    /// The child's copy of memory will be whole; the store is the parent's.
    case memory
    case whole
  }

  /// The forking thread's notes on a cache.
  struct Stage {
    var next: Unmanaged<Cache>?
    var preparation = Preparation.none
    /// No call uses the store, and memory owes nothing to it.
    var isDrained = false
    var hasStripes = false
  }

  /// A cache that has been made takes part in forks until it leaves.
  static func join(_ cache: Cache) {
    Process.setForkHooks({ Forking.prepare() }, { Forking.goOn() }, { Forking.begin() })
    Process.withRoster { (roster: inout UnsafeMutableRawPointer?) in
      cache.fork.next = roster.map { Unmanaged.fromOpaque($0) }
      roster = cache.identity
    }
  }

  static func leave(_ cache: Cache) {
    Process.withRoster { (roster: inout UnsafeMutableRawPointer?) in
      let next = cache.fork.next
      cache.fork.next = nil
      if roster == cache.identity {
        roster = next?.toOpaque()
        return
      }
      var pointer = roster
      while let this = pointer {
        let other = Unmanaged<Cache>.fromOpaque(this).takeUnretainedValue()
        pointer = other.fork.next?.toOpaque()
        if pointer == cache.identity {
          other.fork.next = next
          return
        }
      }
    }
  }

  @inline(never)
  private static func forEach(_ body: (Cache) -> Void) {
    var pointer = Process.roster
    while let this = pointer {
      Unmanaged<Cache>.fromOpaque(this)._withUnsafeGuaranteedRef { cache in
        pointer = cache.fork.next?.toOpaque()
        body(cache)
      }
    }
  }

  private static func prepare() {
    forEach { $0.fork.preparation = .none }
    if ThreadState.isWithinCall { return }
    let end = Process.forkDeadline
    // Without the registry's lock no store can be handed on, and a thread that closes a store must
    // not find its gate paused.
    let isPaused = Process.hasRegistry
    if isPaused { forEach { $0.life.gate.pause() } }
    forEach {
      $0.fork.isDrained =
        isPaused && $0.life.gate.awaitQuiet(until: end) && $0.writesAllDown(until: end)
    }
    let last = Deadline(after: end.left + 200_000_000)
    forEach { $0.fork.hasStripes = $0.lockWrites(until: last) }
    forEach { prepare($0, until: end, last) }
  }

  private static func prepare(_ cache: Cache, until end: Deadline, _ last: Deadline) {
    guard cache.fork.hasStripes else { return }
    guard cache.memory.lockAll(until: last) else {
      cache.unlockWrites()
      return
    }
    cache.fork.preparation = cache.storage == nil ? .whole : .memory
    guard let storage = cache.storage?.forking, cache.fork.isDrained else { return }
    if storage.prepareFork(until: end) { cache.fork.preparation = .whole }
    // Also if it has come half way only.
    cache.followSharing()
  }

  /// In the parent.
  private static func goOn() {
    forEach { cache in
      if cache.fork.preparation == .whole { cache.storage?.forking?.endFork() }
      if cache.fork.preparation != .none {
        cache.memory.unlockAll()
        cache.unlockWrites()
      }
      cache.life.gate.resume()
    }
  }

  /// In the child.
  private static func begin() {
    var kept: Unmanaged<Cache>?
    forEach { cache in
      // A cache whose last handle was being closed would never be closed here.
      let isClosing = cache.life.closing.load(ordering: .relaxed) >= cache.openings
      guard cache.fork.preparation != .none, !isClosing, let child = try? cache.makeForChild()
      else {
        Process.setOwner(cache.identity, to: nil)
        cache.storage?.forking?.closeLocks()
        return
      }
      cache.place?._withUnsafeGuaranteedRef { $0.replace(with: child) }
      Process.setOwner(cache.identity, to: child.life.storageBelongsToParent ? nil : child.identity)
      child.fork.next = kept
      kept = Unmanaged.passUnretained(child)
    }
    forEach { $0.parts.hosts?.forgetChild() }
    Process.roster = kept?.toOpaque()
    EndedBlocks.forgetStripes()
  }
}
