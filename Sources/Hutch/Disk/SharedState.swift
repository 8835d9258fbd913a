import CSystem
import Synchronization

/// The state that the processes of a directory share beside the manifest: the file `hutch.shared`,
/// which all of them have mapped. It does not outlive the last of them: an opening that finds no
/// other one fills it anew, from the manifest. A file that such an opening finds was left by a
/// process that was killed.
///
///      0  a constant that names the file and its layout
///      8  secrets of the keys' hash, four: the same key, the same counter in all processes
///     40  epoch        how often a damaged manifest was set aside
///     48  generation   the generation of the last commit
///     56  members      UInt32: openings that have not ended. Too high after a kill
///     60  owes         UInt32: a sweep for orphans is not done
///     64  begun        the number of transactions that have begun to change anything
///     72  done         the value of `begun` when the numbers here were last made to agree with
///                      the manifest. If the two differ, a transaction is under way, or its
///                      writer died, and the manifest is to be asked
///     80  the manifest's count and charges, and the bytes of its log that are used and taken
///    120  idle         UInt32: the members that are children of forks and have had no turn yet
///    124  durability   UInt32: the strongest that a member has asked for
///    128  the next version
///   4096  the counters of CoherenceCounters
///
/// Where sharing is EXCLUSIVE there is no file: a process and its forked children have the memory
/// in common.
///
/// Only the holder of the writer lock writes, but for the versions, and for the counters that
/// `CoherenceCounters.dropCopies` changes. Stores release and loads acquire, unless a comment says
/// otherwise: a process that reads a number sees the writes before it.
final class SharedState {
  private enum At {
    static let magic = 0
    static let secrets = 8
    static let epoch = 40
    static let generation = 48
    static let members = 56
    static let owes = 60
    static let begun = 64
    static let done = 72
    static let count = 80
    static let charges = 88
    static let logUsed = 96
    static let logSize = 104
    static let idle = 120
    static let durability = 124
    static let versions = 128
    static let counters = 4096
  }

  private static let magic: UInt64 = 0x3130_6465_7261_6873  // "shared01"
  private static let size = At.counters + CoherenceCounters.byteCount

  /// Stays where it is while the tier moves from one directory to another.
  private let base: UnsafeMutableRawPointer
  let counters: CoherenceCounters

  /// True if the memory tier goes by the counters: a copy of an entry counts while its counter is
  /// unchanged.
  var isHandedOut = false
  private var isOnDisk = false

  // What the opening that is alone has found.

  /// True: no file. The one that there is now is this process's.
  private(set) var isNew = false
  /// True: the file of a process that was killed.
  private(set) var wasLeft = false
  /// The next version of that process; 0: unknown.
  private(set) var versionLeft: UInt64 = 0

  // The transaction under way. Under the writer lock.

  /// True if it has changed anything, and is counted in `begun`.
  private var isChanging = false
  /// The indexes of the counters that it has made odd.
  private var touched = GrowingArray<UInt32>()
  /// True if it has made all of them odd.
  private var touchedAll = false

  private init(_ base: UnsafeMutableRawPointer) {
    self.base = base
    counters = CoherenceCounters(base + At.counters, members: base + At.members)
  }

  /// A state without a directory: memory of the process's own.
  static func make(_ hash: KeyedHash) throws(Failure) -> SharedState {
    let base = mmap(nil, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)
    guard let base, base != UnsafeMutableRawPointer(bitPattern: -1) else { throw .noMemory }
    let state = SharedState(base)
    state.secrets = hash.secrets
    // 0 is the version of nothing.
    state.store(At.versions, 1)
    return state
  }

  deinit { munmap(base, SharedState.size) }

  private func cell(_ offset: Int) -> UnsafeMutablePointer<Atomic<UInt64>> {
    (base + offset).assumingMemoryBound(to: Atomic<UInt64>.self)
  }

  private func load(_ offset: Int) -> UInt64 { cell(offset).pointee.load(ordering: .acquiring) }

  private func store(_ offset: Int, _ value: UInt64) {
    cell(offset).pointee.store(value, ordering: .releasing)
  }

  private func half(_ offset: Int) -> UnsafeMutablePointer<Atomic<UInt32>> {
    (base + offset).assumingMemoryBound(to: Atomic<UInt32>.self)
  }

  // MARK: opening

  /// Maps the directory's file; without a directory the memory stays, which only this process and
  /// its children have. A member that is alone fills it anew, with the secrets, the counters and
  /// the versions that this tier has had so far.
  ///
  /// Other threads draw versions meanwhile, and look at the counters. So all that goes on is in the
  /// file before it is mapped here.
  func map(_ directory: Directory?, isAlone: Bool) throws(Failure) {
    guard let directory else {
      memset(base + At.epoch, 0, At.versions - At.epoch)
      // Memory that is new is all zero, which is even.
      if isHandedOut { evenAll() }
      return store(At.magic, SharedState.magic)
    }
    let number = try open(directory, isAlone: isAlone)
    defer { close(number) }
    func map(at place: UnsafeMutableRawPointer?) throws(Failure) -> UnsafeMutableRawPointer {
      let kind = MAP_SHARED | (place == nil ? 0 : MAP_FIXED)
      let mapped = mmap(place, SharedState.size, PROT_READ | PROT_WRITE, kind, number, 0)
      guard let mapped, mapped != UnsafeMutableRawPointer(bitPattern: -1) else {
        throw .system("cannot map the file hutch.shared")
      }
      return mapped
    }
    if isAlone {
      let next = SharedState(try map(at: nil))
      if next.load(At.magic) == SharedState.magic { versionLeft = next.load(At.versions) }
      next.fill(after: self)
    }
    _ = try map(at: base)
    isOnDisk = true
    guard load(At.magic) == SharedState.magic else {
      throw Failure(.badDirectory, "the file hutch.shared in the directory is not a cache's")
    }
  }

  /// Takes over what goes on from the state of the same tier before. Copies in the memory tier have
  /// numbers of the counters.
  private func fill(after before: SharedState) {
    memset(base, 0, At.counters)
    secrets = before.secrets
    var version = before.nextVersion.pointee.load(ordering: .relaxed)
    if before.isHandedOut {
      memcpy(base + At.counters, before.base + At.counters, CoherenceCounters.byteCount)
      version &+= Versions.mostDuringChange
    }
    // A file that is new is all zero, which is even.
    if before.isHandedOut || !before.isNew { evenAll() }
    store(At.versions, version)
    store(At.magic, SharedState.magic)
  }

  private func open(_ directory: Directory, isAlone: Bool) throws(Failure) -> Int32 {
    guard
      let number = Files.openBeneath(
        Files.path(LeftOvers.shared), at: directory.descriptor,
        O_RDWR | O_NONBLOCK | (isAlone ? O_CREAT : 0))
    else { throw .opening("cannot open the file hutch.shared") }
    let file = Descriptor(owning: number)
    guard let status = Files.status(of: number), status.isRegular,
      isAlone || status.size >= SharedState.size
    else { throw Failure(.badDirectory, "the file hutch.shared in the directory is not a cache's") }
    isNew = isAlone && status.size == 0
    wasLeft = isAlone && !isNew
    versionLeft = 0
    if isAlone {
      // Every page gets its block now: a write to a mapped page without one raises SIGBUS if the
      // file system is full.
      let code = posix_fallocate(number, 0, off_t(SharedState.size))
      guard code == 0 else { throw .system("cannot make the file hutch.shared", errno: code) }
    }
    return file.take()
  }

  /// Removes the directory's file, if it has one. The caller is the last member.
  func remove(from directory: Directory) {
    if isOnDisk { _ = Files.unlink(Files.path(LeftOvers.shared), at: directory.descriptor) }
  }

  private var secrets: (UInt64, UInt64, UInt64, UInt64) {
    get {
      (load(At.secrets), load(At.secrets + 8), load(At.secrets + 16), load(At.secrets + 24))
    }
    set {
      store(At.secrets, newValue.0)
      store(At.secrets + 8, newValue.1)
      store(At.secrets + 16, newValue.2)
      store(At.secrets + 24, newValue.3)
    }
  }

  var hash: KeyedHash {
    let secrets = secrets
    return KeyedHash(secrets.0, secrets.1, secrets.2, secrets.3)
  }

  var nextVersion: UnsafeMutablePointer<Atomic<UInt64>> { cell(At.versions) }

  var epoch: UInt64 { load(At.epoch) }

  /// Tells the members that another manifest has taken the place of a damaged one.
  func advanceEpoch() { store(At.epoch, epoch &+ 1) }

  var generation: Int64 {
    get { Int64(bitPattern: load(At.generation)) }
    set { store(At.generation, UInt64(bitPattern: newValue)) }
  }

  var members: UInt32 {
    get { half(At.members).pointee.load(ordering: .acquiring) }
    set { half(At.members).pointee.store(newValue, ordering: .releasing) }
  }

  // Relaxed: the holder of the writer lock alone loads these.

  var idleMembers: UInt32 {
    get { half(At.idle).pointee.load(ordering: .relaxed) }
    set { half(At.idle).pointee.store(newValue, ordering: .relaxed) }
  }

  var durability: UInt32 {
    get { half(At.durability).pointee.load(ordering: .relaxed) }
    set { half(At.durability).pointee.store(newValue, ordering: .relaxed) }
  }

  /// A member notes that it is alone. True: members have ended without saying so, and may have left
  /// content files behind.
  func noteAlone() -> Bool {
    let lost = members > 1 &+ idleMembers
    members = 1
    idleMembers = 0
    return lost
  }

  var owesSweep: Bool {
    get { half(At.owes).pointee.load(ordering: .relaxed) != 0 }
    set { half(At.owes).pointee.store(newValue ? 1 : 0, ordering: .relaxed) }
  }

  // MARK: transactions

  /// The number of the transactions that have begun to change anything.
  var begun: UInt64 { load(At.begun) }

  /// True if the numbers here agree with the manifest.
  var isComplete: Bool { load(At.done) == begun }

  /// The number of transactions so far, if none is under way and this process is the only member;
  /// else nil. A new member is counted before its first commit: a thread that knows of that commit
  /// gets nil.
  var quietState: UInt64? {
    let done = load(At.done)
    return !counters.hasOthers && done == begun ? done : nil
  }

  private func beginChanging() {
    guard !isChanging else { return }
    isChanging = true
    store(At.begun, begun &+ 1)
  }

  /// The transaction is about to change the entry of a key with this hash: the copies that other
  /// processes have of it become stale. `isForAll`: those of this process too.
  func touch(_ hash: UInt64, isForAll: Bool = false) throws(Failure) {
    beginChanging()
    guard isForAll || counters.hasOthers else { return }
    let index = CoherenceCounters.index(of: hash)
    let counter = counters[index]
    guard counter.pointee.load(ordering: .relaxed) & 1 == 0 else { return }
    try touched.append(UInt32(index))
    counter.pointee.wrappingAdd(1, ordering: .acquiringAndReleasing)
  }

  func touchAll() {
    beginChanging()
    guard counters.hasOthers else { return }
    touchedAll = true
    for index in 0..<CoherenceCounters.count
    where counters[index].pointee.load(ordering: .relaxed) & 1 == 0 {
      counters[index].pointee.wrappingAdd(1, ordering: .acquiringAndReleasing)
    }
  }

  /// The transaction is about to be committed.
  func willCommit() { beginChanging() }

  /// The transaction has ended, and its outcome is known.
  func ended() {
    guard isChanging else { return }
    if touchedAll {
      evenAll()
    } else {
      for index in touched.elements {
        counters[Int(index)].pointee.wrappingAdd(1, ordering: .releasing)
      }
    }
    forgetTransaction()
  }

  /// The transaction has ended, and its outcome is not known. Its counters stay odd until the next
  /// holder of the writer lock has asked the manifest.
  func forgetTransaction() {
    isChanging = false
    touchedAll = false
    touched.removeAll()
  }

  /// The numbers here agree with the manifest.
  func noteDone() { store(At.done, begun) }

  /// Makes every counter even: a writer that died may have left some odd.
  func evenAll() {
    for index in 0..<CoherenceCounters.count
    where counters[index].pointee.load(ordering: .relaxed) & 1 != 0 {
      counters[index].pointee.wrappingAdd(1, ordering: .releasing)
    }
  }

  // MARK: sums

  func publish(_ manifest: Manifest) {
    store(At.count, UInt64(manifest.meta.count))
    store(At.charges, UInt64(manifest.meta.charges))
    store(At.logUsed, UInt64(manifest.logUsed))
    store(At.logSize, UInt64(manifest.log))
  }

  var count: UInt64 { load(At.count) }
  var charges: UInt64 { load(At.charges) }
  var log: (used: Int, size: Int) {
    (Int(clamping: load(At.logUsed)), Int(clamping: load(At.logSize)))
  }
}
