import CSystem
import Synchronization

/// The state that the processes of a directory share beside the manifest: the file `hutch.shared`,
/// which all of them have mapped. Nothing in it outlives the last of them: an opening that finds
/// itself alone begins it anew, from the manifest.
///
///      0  a constant that names the file and its layout
///      8  secrets of the keys' hash, four: the same key, the same counter in all processes
///     40  epoch        how often a damaged manifest was set aside
///     48  generation   of what is committed
///     56  members      UInt32: openings that have not ended. Too high after a kill
///     60  owes         UInt32: a sweep for orphans is not done
///     64  begun        writes of transactions that have begun to change anything ...
///     72  done         ... and of those whose end is told here. Not the same: a transaction
///                      is under way, or its writer died: the manifest is to be asked
///     80  count, charges, bytes of the log used and taken, of the manifest
///    120  idle         UInt32: of the members, children of forks that have had no turn yet
///    124  durability   UInt32: the strongest that a member has asked for
///    128  the next version
///   4096  the counters of CoherenceCounters
///
/// Where sharing is EXCLUSIVE there is no file: the memory is the process's own, and its forked
/// children have it in common.
///
/// The holder of the writer lock writes all of it, except the versions and the counters that
/// `CoherenceCounters.dropCopies` changes. Release and acquire throughout, so that a reader of a
/// number sees the writes before it.
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

  // Of the transaction under way, under the writer lock.

  private var isChanging = false
  private var touched = GrowingArray<UInt32>()
  private var touchedAll = false

  private init(_ base: UnsafeMutableRawPointer) {
    self.base = base
    counters = CoherenceCounters(base + At.counters, members: base + At.members)
  }

  /// With no directory yet.
  static func make(_ hash: KeyedHash) throws(Failure) -> SharedState {
    let base = mmap(nil, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)
    guard let base, base != UnsafeMutableRawPointer(bitPattern: -1) else { throw .noMemory }
    let state = SharedState(base)
    let secrets = hash.secrets
    state.store(8, secrets.0)
    state.store(16, secrets.1)
    state.store(24, secrets.2)
    state.store(32, secrets.3)
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

  /// Begins to use the directory's file, or, with no directory, memory that only this process and
  /// its children have. A member that is alone begins it anew; the secrets that this tier has used
  /// stay the ones that it uses.
  func map(_ directory: Directory?, isAlone: Bool) throws(Failure) {
    let secrets = (load(8), load(16), load(24), load(32))
    let before = nextVersion.pointee.load(ordering: .relaxed)
    let file = try directory.map { (directory) throws(Failure) in
      try SharedState.open(directory, isAlone: isAlone)
    }
    // Copies in memory must not fit counters that begin anew.
    let kept = isAlone && isHandedOut ? try Allocation.bytes(CoherenceCounters.byteCount) : nil
    defer { free(kept) }
    kept?.copyMemory(from: base + At.counters, byteCount: CoherenceCounters.byteCount)
    let kind = MAP_SHARED | MAP_FIXED | (file == nil ? MAP_ANONYMOUS : 0)
    let mapped = mmap(base, SharedState.size, PROT_READ | PROT_WRITE, kind, file ?? -1, 0)
    if let file { close(file) }
    guard mapped == base else { throw .system("cannot map the file hutch.shared") }
    isOnDisk = file != nil
    guard isAlone else {
      guard load(At.magic) == SharedState.magic else {
        throw Failure(.badDirectory, "the file hutch.shared in the directory is not a cache's")
      }
      return
    }
    memset(base, 0, At.counters)
    if let kept {
      (base + At.counters).copyMemory(from: kept, byteCount: CoherenceCounters.byteCount)
    }
    // Memory that is new need not be looked at.
    if isOnDisk || kept != nil { evenAll() }
    store(8, secrets.0)
    store(16, secrets.1)
    store(24, secrets.2)
    store(32, secrets.3)
    store(At.versions, before)
    store(At.magic, SharedState.magic)
  }

  private static func open(_ directory: Directory, isAlone: Bool) throws(Failure) -> Int32 {
    guard
      let number = Files.openBeneath(
        Files.path("hutch.shared"), at: directory.descriptor,
        O_RDWR | O_NONBLOCK | (isAlone ? O_CREAT : 0))
    else { throw .opening("cannot open the file hutch.shared") }
    let file = Descriptor(owning: number)
    if isAlone {
      // Blocks for all of it: a mapped page without one, on a full file system, is a SIGBUS.
      let code = posix_fallocate(number, 0, off_t(SharedState.size))
      guard code == 0 else { throw .system("cannot make the file hutch.shared", errno: code) }
    }
    guard let status = Files.status(of: number), hutch_is_regular(status.st_mode) != 0,
      Int(status.st_size) >= SharedState.size
    else { throw Failure(.badDirectory, "the file hutch.shared in the directory is not a cache's") }
    return file.take()
  }

  /// Removes the directory's file, if it has one. The caller is the last member.
  func remove(from directory: Directory) {
    if isOnDisk { SharedState.removeFile(from: directory) }
  }

  static func removeFile(from directory: Directory) {
    _ = Files.unlink(Files.path("hutch.shared"), at: directory.descriptor)
  }

  var hash: KeyedHash { KeyedHash(load(8), load(16), load(24), load(32)) }

  var nextVersion: UnsafeMutablePointer<Atomic<UInt64>> { cell(At.versions) }

  var epoch: UInt64 { load(At.epoch) }

  /// The manifest is another one.
  func advanceEpoch() { store(At.epoch, epoch &+ 1) }

  var generation: Int64 {
    get { Int64(bitPattern: load(At.generation)) }
    set { store(At.generation, UInt64(bitPattern: newValue)) }
  }

  var members: UInt32 {
    get { half(At.members).pointee.load(ordering: .acquiring) }
    set { half(At.members).pointee.store(newValue, ordering: .releasing) }
  }

  var idleMembers: UInt32 {
    get { half(At.idle).pointee.load(ordering: .relaxed) }
    set { half(At.idle).pointee.store(newValue, ordering: .relaxed) }
  }

  var durability: UInt32 {
    get { half(At.durability).pointee.load(ordering: .relaxed) }
    set { half(At.durability).pointee.store(newValue, ordering: .relaxed) }
  }

  /// A member notes that it is alone. True: of the members that were lost one may have
  /// left something behind.
  func noteAlone() -> Bool {
    let lost = members > 1 + idleMembers
    members = 1
    idleMembers = 0
    return lost
  }

  var owesSweep: Bool {
    get { half(At.owes).pointee.load(ordering: .relaxed) != 0 }
    set { half(At.owes).pointee.store(newValue ? 1 : 0, ordering: .relaxed) }
  }

  // MARK: transactions

  /// Which transaction has begun to change anything last.
  var begun: UInt64 { load(At.begun) }

  /// True if the numbers here are the manifest's.
  var isComplete: Bool { load(At.done) == begun }

  /// The transactions so far, while this process is the only one that makes any, and none is
  /// under way. A new member is counted before its first commit: a process that has been told
  /// of that commit finds nil here.
  var quietState: UInt64? {
    let done = load(At.done)
    return !counters.hasOthers && done == begun ? done : nil
  }

  private func beginChanging() {
    guard !isChanging else { return }
    isChanging = true
    store(At.begun, begun &+ 1)
  }

  /// The entry of the key with this hash is about to change. `isForAll`: our own copies count no
  /// more either.
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

  /// The next thing is the COMMIT.
  func willCommit() { beginChanging() }

  /// The transaction has ended, and it is known how.
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

  /// The transaction has ended, and the next holder of the writer lock has to find out how.
  func forgetTransaction() {
    isChanging = false
    touchedAll = false
    touched.removeAll()
  }

  /// The numbers here are the manifest's.
  func noteDone() { store(At.done, begun) }

  /// Of writers that died.
  func evenAll() {
    for index in 0..<CoherenceCounters.count
    where counters[index].pointee.load(ordering: .relaxed) & 1 != 0 {
      counters[index].pointee.wrappingAdd(1, ordering: .releasing)
    }
  }

  // MARK: sums

  func publish(_ meta: Meta, _ manifest: Manifest) {
    store(At.count, UInt64(meta.count))
    store(At.charges, UInt64(meta.charges))
    store(At.logUsed, UInt64(manifest.logUsed))
    store(At.logSize, UInt64(manifest.log))
  }

  var count: UInt64 { load(At.count) }
  var charges: UInt64 { load(At.charges) }
  var log: (used: Int, size: Int) {
    (Int(clamping: load(At.logUsed)), Int(clamping: load(At.logSize)))
  }
}
