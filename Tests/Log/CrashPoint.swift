import CLogTests
import CSystem

/// What every store to shared memory calls in the tests: it kills the process after the n-th store,
/// and notes the place in the program of each store.
enum CrashPoint {
  /// The number of stores so far.
  nonisolated(unsafe) private static var passed = 0
  /// The store after which the process kills itself; 0: after none.
  nonisolated(unsafe) private static var deadly = 0
  nonisolated(unsafe) private static var trace: StoreTrace?

  /// Begins to count stores.
  static func arm(_ point: Int, _ trace: StoreTrace? = nil) {
    passed = 0
    deadly = point
    trace?.count = 0
    self.trace = trace
  }

  @inline(__always)
  static func pass() { pass(at: log_store_place()) }

  @inline(never)
  private static func pass(at place: UInt) {
    passed += 1
    trace?.append(place)
    if passed == deadly { kill(getpid(), SIGKILL) }
  }
}

/// The places of the stores that one process has made, in memory that it shares with its judge.
struct StoreTrace {
  static let room = 1 << 17
  private let base: UnsafeMutablePointer<UInt>

  init() {
    let size = (StoreTrace.room + 1) * MemoryLayout<UInt>.stride
    let memory = mmap(nil, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)
    check(memory != UnsafeMutableRawPointer(bitPattern: -1), "mmap")
    base = memory!.assumingMemoryBound(to: UInt.self)
  }

  var count: Int {
    get { Int(base[0]) }
    nonmutating set { base[0] = UInt(newValue) }
  }

  /// Of the n-th store, from 1.
  subscript(_ point: Int) -> UInt { base[point] }

  func append(_ place: UInt) {
    check(count < StoreTrace.room, "an operation makes too many stores")
    base[count + 1] = place
    count += 1
  }
}

/// The random numbers of the library are a sequence of the test's seed, so a scenario makes the
/// same stores every time.
nonisolated(unsafe) var libraryRandom = Random(1)

/// Stands before libc's.
@_cdecl("getrandom")
func seededRandom(_ buffer: UnsafeMutableRawPointer, _ count: Int, _ flags: UInt32) -> Int {
  for i in 0..<count {
    buffer.storeBytes(of: UInt8(libraryRandom.next(256)), toByteOffset: i, as: UInt8.self)
  }
  return count
}
