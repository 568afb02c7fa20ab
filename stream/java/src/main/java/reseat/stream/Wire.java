package reseat.stream;

import java.io.Closeable;
import java.io.DataInputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;

/**
 * Frames over a connected socket: u32 size of the body, u16 type, u16 zero, and the body; little-endian. One
 * thread may write while another one reads.
 */
final class Wire implements Closeable {
    static final int VERSION = 1;
    static final int WANTS_AREA = 1;
    static final int BODY_MAX = 1 << 20;

    static final int OPEN = 1;
    static final int OPENED = 2;
    static final int REFUSED = 3;
    static final int RECORDS = 4;
    static final int ANSWERS = 5;
    static final int FINISHED = 6;

    /** A frame that was received. */
    record Frame(int type, ByteBuffer body) {
    }

    /** The service's answer to OPEN. */
    static final class Opened {
        final int input;
        final int output;
        final long capacity;
        final long areaBytes;
        final String area;
        final String program;

        Opened(ByteBuffer body) throws IOException {
            int version = body.getInt();
            if (version != VERSION)
                throw new IOException("it speaks version " + version + ", this library " + VERSION);
            input = body.getInt();
            output = body.getInt();
            capacity = body.getLong();
            areaBytes = body.getLong();
            area = string(body);
            program = string(body);
            if (input <= 0 || output <= 0 || capacity <= 0)
                throw new IOException("its records or rings have no size");
        }
    }

    /** The socket itself, where it is a Unix socket; else null. */
    final SocketChannel channel;
    private final Closeable socket;
    private final DataInputStream in;
    private final OutputStream out;
    private final byte[] head = new byte[8];

    /** Over a Unix socket. Channels.newInputStream() would hold a lock that its output stream needs. */
    Wire(SocketChannel channel) {
        this(channel, channel, new InputStream() {
            @Override
            public int read() throws IOException {
                byte[] one = new byte[1];
                return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
            }

            @Override
            public int read(byte[] bytes, int at, int size) throws IOException {
                return channel.read(ByteBuffer.wrap(bytes, at, size));
            }
        }, new OutputStream() {
            @Override
            public void write(int one) throws IOException {
                write(new byte[] {(byte) one}, 0, 1);
            }

            @Override
            public void write(byte[] bytes, int at, int size) throws IOException {
                for (ByteBuffer left = ByteBuffer.wrap(bytes, at, size); left.hasRemaining();)
                    channel.write(left);
            }
        });
    }

    Wire(SocketChannel channel, Closeable socket, InputStream in, OutputStream out) {
        this.channel = channel;
        this.socket = socket;
        this.in = new DataInputStream(in);
        this.out = out;
    }

    /** Write a frame of the first @size bytes of @frame, of which the first 8 are left for its head. */
    void write(int type, byte[] frame, int size) throws IOException {
        ByteBuffer.wrap(frame).order(ByteOrder.LITTLE_ENDIAN).putInt(size - 8).putInt(type);
        out.write(frame, 0, size);
        out.flush();
    }

    /** Read the next frame's head. EOFException: the service has ended. */
    ByteBuffer readHead() throws IOException {
        in.readFully(head);
        ByteBuffer parsed = ByteBuffer.wrap(head).order(ByteOrder.LITTLE_ENDIAN);
        if (Integer.toUnsignedLong(parsed.getInt(0)) > BODY_MAX)
            throw new IOException("a frame of " + Integer.toUnsignedLong(parsed.getInt(0)) + " bytes");
        return parsed;
    }

    void readBody(byte[] bytes, int size) throws IOException {
        in.readFully(bytes, 0, size);
    }

    Frame read() throws IOException {
        ByteBuffer parsed = readHead();
        byte[] body = new byte[parsed.getInt(0)];
        readBody(body, body.length);
        return new Frame(parsed.getShort(4), ByteBuffer.wrap(body).order(ByteOrder.LITTLE_ENDIAN));
    }

    static String string(ByteBuffer body) throws IOException {
        int size = body.getInt();
        if (size < 0 || size > body.remaining())
            throw new IOException("a string of " + Integer.toUnsignedLong(size) + " bytes");
        byte[] bytes = new byte[size];
        body.get(bytes);
        return new String(bytes, StandardCharsets.UTF_8);
    }

    /** The sentence of a REFUSED frame. */
    static String sentence(ByteBuffer body) throws IOException {
        if (body.remaining() < 8)
            throw new EOFException("half a frame");
        body.getInt();
        return string(body);
    }

    @Override
    public void close() {
        try {
            socket.close();
        } catch (IOException e) {
            // It is closed all the same.
        }
    }
}
