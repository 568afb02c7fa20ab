/**
 * Kernels on accelerators for Java programs: records go in, answers come out, in order and exactly
 * once, while the device may be moved or lost. Plain Java 17 without native code; what runs the
 * kernels is the stream service of reseat ({@code reseat stream serve}).
 *
 * <p>Begin with {@link reseat.stream.Reseat#open}.
 */
package reseat.stream;
