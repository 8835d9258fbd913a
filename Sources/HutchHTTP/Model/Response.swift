import CSystem

/// What came back. The session's thread fills it in. Others see it when the headers are there, and
/// its body when the task has ended: both are told under the session's lock.
final class Response {
  var code: Int32 = 0
  var version: UInt32 = 0
  var url: Text
  var redirects: UInt64 = 0
  /// The body is one that the cache had.
  var isFromCache = false
  var fields = Fields()
  var body = GrowingArray<UInt8>()
  /// Where a file of the cache has the whole body; nil: none has. Set before the task ends.
  var place: PlaceInFile?
  /// The decoder that succeeded; nil: none.
  var decoder: Int?
  /// Of a decoder of text that changed the body.
  var text: DecodedText?
  /// Of a decoder of the host.
  var object: UnsafeMutableRawPointer?

  init(from url: Text) { self.url = url }
}

/// The numbers of hutch_http_progress and hutch_http_metrics that are counted on the way.
struct Traffic: Equatable {
  var sent: UInt64 = 0
  var expectedToSend: UInt64 = 0
  var received: UInt64 = 0
  var expected: UInt64 = 0
}

/// Times in nanoseconds, and sums over all requests of a task.
struct Metrics {
  var nameLookup: Int64 = 0
  var connect: Int64 = 0
  var tls: Int64 = 0
  var firstByte: Int64 = 0
  var total: Int64 = 0
  var bytesSent: UInt64 = 0
  var bytesReceived: UInt64 = 0
  var requests: UInt64 = 0
  var redirects: UInt64 = 0
  var connections: UInt64 = 0
  var fromCache: UInt64 = 0
}
