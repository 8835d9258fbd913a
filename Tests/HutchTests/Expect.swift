import Testing

/// Records an issue unless the condition holds. As `#expect`, without the values of the
/// condition's parts: the comment names what a reader of the issue needs. Each `#expect` is
/// expanded into closures, and costs the compiler some 20 ms; there are fourteen hundred.
func expect(
  _ condition: Bool, _ comment: @autoclosure () -> Comment? = nil,
  sourceLocation: SourceLocation = #_sourceLocation
) {
  if !condition { Issue.record(comment(), sourceLocation: sourceLocation) }
}
