import CSystem
import Synchronization

/// A host's function that lets go of a context, or of an object.
typealias Release = @convention(c) (UnsafeMutableRawPointer?) -> Void

/// The state of each thread: its last failure, and the callbacks that it is within. Only this file
/// touches the thread-local (see CSystem/system.h).
enum ThreadState {
  /// Notes a failure for hutch_last_error. A failure within a callback of the library is not the
  /// failure of the call around it: the first one there saves the older failure until the end of
  /// the callback. If there is no memory for that, the older failure stays. `detail`: the words of
  /// the store's engine, or nil; ends with NUL. `subject`: what the failure is about, a path,
  /// likewise.
  static func note(
    _ failure: Failure, _ detail: UnsafePointer<CChar>?, _ subject: UnsafePointer<CChar>? = nil
  ) {
    let state = hutch_thread_state()!
    if let frame = state.pointee.callback, frame.pointee.before == nil {
      guard let raw = malloc(MemoryLayout<hutch_note>.size) else { return }
      let copy = raw.bindMemory(to: hutch_note.self, capacity: 1)
      copy.initialize(to: state.pointee.note)
      frame.pointee.before = copy
    }
    state.pointee.note.status = failure.status.code
    state.pointee.note.system_error = failure.system
    state.pointee.note.sqlite_error = failure.sqlite
    withUnsafeMutableBytes(of: &state.pointee.note.words) {
      compose(failure, detail, subject, into: $0)
    }
  }

  /// A callback that has noted failures ends: the thread's last failure is the older one again.
  @inline(never)
  private static func restore(_ before: UnsafeMutablePointer<hutch_note>) {
    hutch_thread_state()!.pointee.note = before.pointee
    free(before)
  }

  /// "subject: words: number: detail: strerror", cut to fit, always terminated by NUL.
  static func compose(
    _ failure: Failure, _ detail: UnsafePointer<CChar>?, _ subject: UnsafePointer<CChar>? = nil,
    into target: UnsafeMutableRawBufferPointer
  ) {
    var used = 0
    let room = target.count - 1
    func append(_ text: UnsafeRawPointer) {
      let count = length(of: text.assumingMemoryBound(to: CChar.self), most: room - used)
      (target.baseAddress! + used).copyMemory(from: text, byteCount: count)
      used += count
    }
    let separator: StaticString = ": "
    if let subject, subject.pointee != 0 {
      // A path that would leave no room for the reason keeps only its end.
      let length = strlen(subject)
      var start = subject
      if length > longestSubject {
        let cut: StaticString = "..."
        append(cut.utf8Start)
        start += length - longestSubject
        while continues(start.pointee) { start += 1 }
      }
      append(start)
      append(separator.utf8Start)
    }
    let isLoaders = failure.status == .loadFailed
    if isLoaders {
      let loader: StaticString = "the loader failed"
      append(loader.utf8Start)
      if failure.words.pointee != 0 { append(separator.utf8Start) }
    }
    append(failure.words)
    if let argument = failure.argument {
      append(separator.utf8Start)
      var digits = (UInt64(0), UInt64(0))
      withUnsafeMutableBytes(of: &digits) { digits in
        var rest = argument
        var place = digits.count - 1
        repeat {
          place -= 1
          digits[place] = UInt8(0x30 + rest % 10)
          rest /= 10
        } while rest > 0
        append(digits.baseAddress! + place)
      }
    }
    if let detail {
      append(separator.utf8Start)
      append(detail)
    }
    // A loader's code is its own, not an errno.
    if !isLoaders, failure.system != 0, let why = strerrordesc_np(failure.system) {
      append(separator.utf8Start)
      append(why)
    }
    target[used] = 0
    replaceOthers(target)
  }

  /// Puts a question mark for each byte of a text that belongs to no character of UTF-8: a path and
  /// the words of a host have any bytes.
  private static func replaceOthers(_ text: UnsafeMutableRawBufferPointer) {
    var start = 0
    while text[start] != 0 {
      let size = (~text[start]).leadingZeroBitCount
      var end = start + 1
      if size > 0 {
        var scalar = UInt32(text[start] & 0x7F >> UInt8(size))
        while end < start + size, text[end] & 0xC0 == 0x80 {
          scalar = scalar << 6 | UInt32(text[end] & 0x3F)
          end += 1
        }
        // Neither longer than needed, nor a surrogate, nor above the last one.
        let least: UInt32 = size == 2 ? 0x80 : 1 << UInt32(5 * size - 4)
        if size > 4 || end < start + max(size, 2) || scalar < least || scalar >> 11 == 0x1B
          || scalar > 0x10FFFF
        {
          text[start] = 0x3F
          end = start + 1
        }
      }
      start = end
    }
  }

  private static var longestSubject: Int { 100 }

  /// The bytes of a text, at most so many: it is cut before a character that would not be whole.
  @inline(never)
  static func length(of text: UnsafePointer<CChar>, most: Int) -> Int {
    var end = strnlen(text, most)
    while end > 0, continues(text[end]) { end -= 1 }
    return end
  }

  /// Of UTF-8, another byte than the first one of a character.
  private static func continues(_ byte: CChar) -> Bool { UInt8(bitPattern: byte) & 0xC0 == 0x80 }

  /// The numbers of this thread's last failure; all 0 if there was none.
  static var lastFailure: (status: Int32, system: Int32, sqlite: Int32) {
    let state = hutch_thread_state()!
    return (
      state.pointee.note.status, state.pointee.note.system_error, state.pointee.note.sqlite_error
    )
  }

  /// Copies its words, with the NUL, to a buffer that has room for them.
  static func copyWords(to buffer: UnsafeMutableRawBufferPointer) {
    withUnsafeBytes(of: &hutch_thread_state().pointee.note.words) { buffer.copyMemory(from: $0) }
  }

  /// Its words in place: valid until the thread's next failure.
  static var words: UnsafePointer<CChar> {
    withUnsafeBytes(of: &hutch_thread_state().pointee.note.words) {
      $0.baseAddress!.assumingMemoryBound(to: CChar.self)
    }
  }

  /// Runs a host's callback on behalf of `owner`, a cache or a queue.
  static func within<R>(_ owner: UnsafeMutableRawPointer, _ callback: () -> R) -> R {
    var frame = hutch_callback(owner: owner, outer: nil, before: nil)
    return _withUnprotectedUnsafeMutablePointer(to: &frame) { frame in
      let aside = enter(frame)
      defer { leave(frame, aside) }
      return callback()
    }
  }

  @inline(never)
  private static func enter(_ frame: UnsafeMutablePointer<hutch_callback>) -> Int32 {
    assertNoLocks()
    let state = hutch_thread_state()!
    frame.pointee.outer = state.pointee.callback
    let aside = stepAside()
    state.pointee.callback = frame
    return aside
  }

  @inline(never)
  private static func leave(_ frame: UnsafeMutablePointer<hutch_callback>, _ aside: Int32) {
    hutch_thread_state()!.pointee.callback = frame.pointee.outer
    if let before = frame.pointee.before { restore(before) }
    stepBack(to: aside)
  }

  /// Returns a context to the host: its release is a callback of `owner` like any other.
  @inline(never)
  static func give(
    _ context: UnsafeMutableRawPointer?, back release: Release?,
    of owner: UnsafeMutableRawPointer?
  ) {
    guard let release else { return }
    guard let owner else { return release(context) }
    within(owner) { release(context) }
  }

  /// True if this thread is within a callback of `owner`, at any depth.
  static func isWithinCallback(of owner: UnsafeMutableRawPointer) -> Bool {
    var frame = hutch_thread_state()!.pointee.callback
    while let callback = frame {
      if callback.pointee.owner == owner { return true }
      frame = callback.pointee.outer
    }
    return false
  }

  /// The queue whose worker this thread is.
  static var workerOf: UnsafeMutableRawPointer? {
    get { hutch_thread_state()!.pointee.worker_of }
    set { hutch_thread_state()!.pointee.worker_of = newValue }
  }

  /// The thread's number, which tells its line of `ThreadLines`.
  @inline(__always)
  static var number: Int {
    let number = hutch_thread_state()!.pointee.number
    return _fastPath(number != 0) ? Int(number) : newNumber()
  }

  /// The number of the thread's line of readers (ShardLock.swift), of any number of lines.
  @inline(__always)
  static var reader: Int {
    number &+ Int(hutch_thread_state()!.pointee.moves)
  }

  /// The thread has the next line of readers from here on.
  static func moveToNextReader() { hutch_thread_state()!.pointee.moves &+= 1 }

  @inline(never)
  private static func newNumber() -> Int {
    let number = hutch_next_number()
    hutch_thread_state()!.pointee.number = number
    return Int(number)
  }

  // MARK: gates

  /// True if this thread is inside a gate, and not aside.
  static var isInside: Bool {
    let state = hutch_thread_state()!
    return state.pointee.inside > state.pointee.aside
  }

  /// True if the innermost gate that this thread is inside has this word, and it is not aside.
  static func isInside(by gate: ThreadLines.Word) -> Bool {
    let state = hutch_thread_state()!
    let index = state.pointee.inside &- 1
    return index >= state.pointee.aside && index < mostGates
      && hutch_gates(state)![Int(index)] == UnsafeMutableRawPointer(gate)
  }

  /// With more nested gates than these, the innermost are not recorded.
  private static let mostGates: Int32 = 4

  @inline(__always)
  static func noteInside(_ gate: ThreadLines.Word) {
    let state = hutch_thread_state()!
    let index = state.pointee.inside
    if index < mostGates { hutch_gates(state)![Int(index)] = UnsafeMutableRawPointer(gate) }
    state.pointee.inside = index &+ 1
  }

  @inline(__always)
  static func noteOutside() { hutch_thread_state()!.pointee.inside &-= 1 }

  /// From here on a fork does not wait for this thread, which calls the host, or waits for a thread
  /// that does. Its work in progress stays as it is. The caller must call `stepBack` with the
  /// result.
  static func stepAside() -> Int32 {
    let state = hutch_thread_state()!
    let before = state.pointee.aside
    let inside = min(state.pointee.inside, mostGates)
    if before < inside { step(from: before, to: inside, isAside: true) }
    return before
  }

  static func stepBack(to before: Int32) {
    let aside = hutch_thread_state()!.pointee.aside
    if before < aside { step(from: before, to: aside, isAside: false) }
  }

  @inline(never)
  private static func step(from low: Int32, to high: Int32, isAside: Bool) {
    for index in low..<high {
      let gate = hutch_gates(hutch_thread_state())![Int(index)]!
        .assumingMemoryBound(to: Atomic<UInt64>.self)
      if isAside { Gate.stepAside(gate) } else { Gate.stepBack(gate) }
    }
    hutch_thread_state()!.pointee.aside = isAside ? high : low
  }

  /// True if this thread is within a call of the library, as in a callback.
  static var isWithinCall: Bool {
    let state = hutch_thread_state()!
    return state.pointee.callback != nil || state.pointee.inside > 0
  }

  /// True if this thread forks, and holds the roster's lock (see Process).
  static var hasRoster: Bool {
    get { hutch_thread_state()!.pointee.has_roster != 0 }
    set { hutch_thread_state()!.pointee.has_roster = newValue ? 1 : 0 }
  }

  // MARK: locks, in debug builds

  /// Counts the locks that this thread holds, for `assertNoLocks`.
  @inline(__always)
  static func countLocks(_ change: Int32) {
    #if DEBUG
      hutch_thread_state()!.pointee.locks += change
    #endif
  }

  /// No function of the host is called while the thread holds a lock of the library.
  @inline(__always)
  static func assertNoLocks() {
    #if DEBUG
      precondition(
        hutch_thread_state()!.pointee.locks == 0, "a callback is made with a lock held")
    #endif
  }

  /// Checks a function that requires a lock of the library to be held.
  @inline(__always)
  static func assertLock() {
    #if DEBUG
      precondition(hutch_thread_state()!.pointee.locks > 0, "a lock is not held")
    #endif
  }

  /// The cache whose events or lines of the log this thread delivers.
  static var telling: UnsafeMutableRawPointer? {
    get { hutch_thread_state()!.pointee.telling }
    set { hutch_thread_state()!.pointee.telling = newValue }
  }

  /// The load whose loader this thread is within; the caller of the loader holds the reference.
  static var loading: UnsafeMutableRawPointer? {
    get { hutch_thread_state()!.pointee.loading }
    set { hutch_thread_state()!.pointee.loading = newValue }
  }
}
